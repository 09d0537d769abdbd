"""The bounds of the parser. Beyond them a message is quarantined, or a value is cut and flagged."""

from __future__ import annotations

#: Nested multiparts below the message itself.
MAX_DEPTH = 50
#: Nodes of the MIME tree, the message itself included.
MAX_PARTS = 1_000
#: One header field, folded lines included, in bytes: what is longer is cut.
MAX_HEADER_BYTES = 64 * 1024
#: All header fields of one message or part, in bytes.
MAX_HEADER_BLOCK_BYTES = 256 * 1024
#: Header fields of one message or part.
MAX_HEADER_FIELDS = 1_000
#: Entries of one address header.
MAX_ADDRESSES = 2_000
#: One address, as RFC 5321 bounds a path, in characters.
MAX_ADDRESS_CHARS = 254
#: A display name, a subject, an attachment's shown name, in characters.
MAX_NAME_CHARS = 255
MAX_SUBJECT_CHARS = 10_000
#: A Message-ID, as RFC 5322 bounds a line, in characters.
MAX_MESSAGE_ID_CHARS = 998
#: Ids kept of References: the oldest one and the newest.
MAX_REFERENCES = 100
#: A media type, in characters.
MAX_TYPE_CHARS = 127
#: A boundary; RFC 2046 says 70, real mail is longer now and then.
MAX_BOUNDARY_CHARS = 250
#: HTML above this is only stripped of its tags, not laid out, in characters.
MAX_LAID_OUT_HTML_CHARS = 256 * 1024
#: Nested elements of HTML that is read for hidden text, and that is laid out; deeper HTML is only
#: stripped of its tags.
MAX_READ_HTML_DEPTH = 2_000
MAX_LAID_OUT_HTML_DEPTH = 150
#: An Authentication-Results header above this is not looked at, in characters.
MAX_RESULTS_CHARS = 4 * 1024
#: Places in a text that may be the start of a quoted mail and are looked at closely.
MAX_QUOTE_CANDIDATES = 50
