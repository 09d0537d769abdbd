"""The only code that writes approvals' tables, by use case.

Lock order: Root → Goal → Consent → Connection → Hold → Approval → Job → Effect → head of the log
(the first four and Job come with the Gmail profile). No network, file or key access inside.
"""
