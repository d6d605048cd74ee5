"""What each ATen operator means, a file per family. Importing one fills the table."""
