"""config: settings, urls, ASGI, the API's and the console's assembly, health, and the commands that
run the whole house (`up`, `demo`, `doctor`). Composes everything; nothing imports it.
"""
