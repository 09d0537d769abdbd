"""What every front of every app is built from: the API's manners, console pages, commands.

`api` has token auth, the one error shape and pagination; `console` pages and acts; `forms` forms
behind which a service stands; `commands` the base of management commands.
"""
