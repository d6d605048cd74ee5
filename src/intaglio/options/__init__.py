"""Options of a compile: what there is, what goes together, and how Python and the command line write it.

request     every option once, as a field of `Request`
kinds       types of options, and how words become values
values      types of keywords, and how they are checked
rules       options that do not go together
keywords    the same options as keywords of `intaglio.compile`
reading     words of the command line, or keywords, become a `Request`
"""
