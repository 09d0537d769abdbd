"""Countersign's settings: read from the environment and `.env`, documented where they are read."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import django_stubs_ext
import environ
from django.core.exceptions import ImproperlyConfigured
from django.urls import reverse_lazy

from config import api_files, policies

django_stubs_ext.monkeypatch()

BASE_DIR = Path(__file__).resolve().parent.parent

env = environ.Env()
environ.Env.read_env(BASE_DIR / ".env")

# Where everything lives that is not in the database: raw mail, keys, secrets, pipeline directories.
DATA_DIR = Path(env.str("DATA_DIR", default=str(BASE_DIR / "var"))).resolve()
DATA_DIR.mkdir(mode=0o700, parents=True, exist_ok=True)

# Signs sessions, CSRF tokens and queue packages. `make setup` writes one into .env.
SECRET_KEY = env.str("SECRET_KEY", default="")
if not SECRET_KEY:
    raise ImproperlyConfigured(
        "SECRET_KEY is not set: run `make setup`, or put SECRET_KEY=… into .env or the environment."
    )

# Shows tracebacks in the browser. Never in front of people.
DEBUG = env.bool("DEBUG", default=False)
# A word beside the operator's name in the console, such as `demo` or `staging`. Empty: none.
ENVIRONMENT_LABEL = env.str("ENVIRONMENT_LABEL", default="")
# Host names this installation answers to.
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])
# Origins that may POST through a TLS proxy, such as https://countersign.example.
CSRF_TRUSTED_ORIGINS = env.list("CSRF_TRUSTED_ORIGINS", default=[])
# Whether people reach the console over HTTPS: then cookies are secure and HSTS is sent.
HTTPS = env.bool("HTTPS", default=False)

INSTALLED_APPS = [
    "unfold",
    "unfold.contrib.filters",
    "config.pages.PagesConfig",  # django.contrib.admin
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "axes",
    "csp",
    "channels",
    "django_q",
    "django_structlog",
    "guards",
    "approvals",
    "teams",
    "mail",
    "pipelines",
    "config",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "config.policies.ConsoleMiddleware",
    "guards.fronts.shape.OneShapeMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "approvals.middleware.RootMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_structlog.middlewares.RequestMiddleware",
    "axes.middleware.AxesMiddleware",
]

ROOT_URLCONF = "config.urls"
WSGI_APPLICATION = "config.wsgi.application"
ASGI_APPLICATION = "config.asgi.application"

TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates", api_files.TEMPLATES],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

# --- Database -------------------------------------------------------------------------------------

# One URL: sqlite:///path (the default, inside DATA_DIR) or postgres://user:password@host/name.
DATABASE_URL = env.str("DATABASE_URL", default=f"sqlite:///{DATA_DIR / 'countersign.sqlite3'}")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it tells all of a URL that it does not know, the password too
    DATABASES: dict[str, dict[str, Any]] = {"default": env.db_url_config(DATABASE_URL)}
_database = DATABASES["default"]
if _database.get("ENGINE") not in ("django.db.backends.sqlite3", "django.db.backends.postgresql"):
    raise ImproperlyConfigured(
        "DATABASE_URL names no database that Countersign runs on: leave it out for SQLite in "
        "DATA_DIR, or give sqlite:///path or postgres://user:password@host/name"
    )
if _database["ENGINE"] == "django.db.backends.sqlite3":
    # IMMEDIATE: a read-then-write transaction waits for its lock instead of failing at once.
    # FULL: the mark of an effect has to survive a power cut.
    _database["OPTIONS"] = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": (
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA busy_timeout=20000;"
        ),
    }
else:
    _database["CONN_HEALTH_CHECKS"] = True
    # Seconds to wait for a server that does not answer (the driver would wait for ever).
    _database.setdefault("OPTIONS", {}).setdefault("connect_timeout", 10)
# Reconnecting at every queue operation costs nine tenths of the throughput.
_database["CONN_MAX_AGE"] = 600
_database["ATOMIC_REQUESTS"] = False
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# --- Queue ----------------------------------------------------------------------------------------

# redis://… moves queue and channel layer to Redis; empty keeps them in database and process.
REDIS_URL = env.str("REDIS_URL", default="")

# How many pipelines run at the same time. 1 is serial. Above QUEUE_WORKERS each worker carries its
# share of short ones (one stage, no reply) out beside each other.
PIPELINE_CONCURRENCY = env.int("PIPELINE_CONCURRENCY", default=1)

# How many worker processes take tasks.
QUEUE_WORKERS = env.int("QUEUE_WORKERS", default=2)

# Wall seconds after which the queue kills a task. Our own limits (stages, HTTP, SMTP) lie below it.
QUEUE_TIMEOUT = env.int("QUEUE_TIMEOUT", default=2400)

Q_CLUSTER: dict[str, Any] = {
    "name": "countersign",
    "label": "Queue",
    "broker_class": (
        "guards.queue.redis_broker.RedisBroker" if REDIS_URL else "guards.queue.brokers.OrmBroker"
    ),
    "orm": "default",
    "redis": REDIS_URL or None,
    "workers": QUEUE_WORKERS,
    "queue_limit": QUEUE_WORKERS,
    "bulk": 1,
    # The fallback when a wake-up is lost; the wake-up itself takes milliseconds.
    "poll": 0.5,
    "timeout": QUEUE_TIMEOUT,
    # retry > (queue_limit + 2) × timeout, or a task is taken twice while it waits in memory.
    "retry": (QUEUE_WORKERS + 3) * QUEUE_TIMEOUT,
    # Every handler claims its own row; asking the queue to repeat adds nothing but risk.
    "max_attempts": 1,
    "ack_failures": True,
    "catch_up": False,
    # Results are pickles, and the queue would read them back; our own rows say what happened.
    "save_limit": -1,
    # `manage.py worker` runs the timetable, after removing rows that nobody may run.
    "scheduler": False,
}

CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": REDIS_URL,
    }
    if REDIS_URL
    else {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
}

CHANNEL_LAYERS: dict[str, Any] = {
    "default": {
        "BACKEND": "channels_redis.core.RedisChannelLayer",
        "CONFIG": {"hosts": [REDIS_URL]},
    }
    if REDIS_URL
    else {"BACKEND": "channels.layers.InMemoryChannelLayer"}
}

# --- Files ----------------------------------------------------------------------------------------

# Raw mail, content-addressed. Any Django storage will do; the default is a folder in DATA_DIR.
STORAGES: dict[str, dict[str, Any]] = {
    "default": {
        "BACKEND": "django.core.files.storage.FileSystemStorage",
        "OPTIONS": {"location": str(DATA_DIR / "files")},
    },
    "mail": {
        "BACKEND": env.str("MAIL_STORAGE", default="django.core.files.storage.FileSystemStorage"),
        "OPTIONS": {
            "location": str(DATA_DIR / "mail"),
            "file_permissions_mode": 0o600,
            "directory_permissions_mode": 0o700,
        },
    },
    "staticfiles": {
        "BACKEND": "whitenoise.storage.CompressedStaticFilesStorage",
    },
}
STATIC_URL = "/static/"
STATIC_ROOT = DATA_DIR / "static"
STATICFILES_DIRS = [BASE_DIR / "static", api_files.STATIC]
# Serve straight from the apps' folders where `collectstatic` has not run (embedded shape).
WHITENOISE_USE_FINDERS = True

# --- Trust and keys -------------------------------------------------------------------------------

# Who signs commands: the 40 hex digits of the owner's primary key. Never in the database. Without
# this and OWNER_HANDLE no command runs, quietly.
OWNER_FINGERPRINT = env.str("OWNER_FINGERPRINT", default="")
# Who signs commands, as a handle that ethos files resolve. Never beside OWNER_FINGERPRINT.
OWNER_HANDLE = env.str("OWNER_HANDLE", default="")
# The file with the owner's public key.
OWNER_KEY_FILE = env.str("OWNER_KEY_FILE", default="")
# Where ethos keeps identities, for OWNER_HANDLE and `import_ethos`.
ETHOS_DIR = env.str("ETHOS_DIR", default=str(Path.home() / ".punt-labs" / "ethos"))

# Secret reference of the Ed25519 key (PEM) that signs heads of the event log.
INSTALLATION_KEY_REF = env.str(
    "INSTALLATION_KEY_REF", default=f"file:{DATA_DIR / 'keys' / 'installation.pem'}"
)
# Secret reference of the Fernet keys (one a line, newest first) that encrypt artifacts.
ARTIFACT_KEY_REF = env.str("ARTIFACT_KEY_REF", default=f"file:{DATA_DIR / 'keys' / 'artifact.key'}")
# Where a bare secret name is looked up, and where the console writes a secret given once.
SECRETS_DIR = Path(env.str("SECRETS_DIR", default=str(DATA_DIR / "secrets")))

# How old a signature (or a trusted message) may be and still start work, in hours.
EXECUTE_MAX_AGE_HOURS = env.int("EXECUTE_MAX_AGE_HOURS", default=24)

# Programs that signed commands may run: directories (everything directly inside) or files. The
# default holds shells, interpreters and `env`, which start anything: it keeps out programs that lie
# elsewhere, and the owner's signature is what keeps out the rest. Name single files to allow less.
ALLOWED_BINARIES = env.list("ALLOWED_BINARIES", default=["/usr/bin", "/bin"])

# A JSON file that adds to, or replaces, the lists of options that listed programs may be given.
SAFE_OPTIONS_FILE = env.str("SAFE_OPTIONS_FILE", default="")

# --- Pipelines ------------------------------------------------------------------------------------

# Where each pipeline has its own directory for attachments and files of its stages.
PIPELINES_DIR = Path(env.str("PIPELINES_DIR", default=str(DATA_DIR / "pipelines")))
# How long a directory outlives its pipeline, in hours. 0 removes it at once.
PIPELINE_FILES_RETENTION_HOURS = env.int("PIPELINE_FILES_RETENTION_HOURS", default=0)
# Tell the requester that work goes on when a pipeline takes longer, in seconds. 0: never.
ACKNOWLEDGE_AFTER_SECONDS = env.int("ACKNOWLEDGE_AFTER_SECONDS", default=0)

# --- Workers (the `claude` runner) ----------------------------------------------------------------

# The Claude Code program, as a name or a full path.
CLAUDE_BINARY = env.str("CLAUDE_BINARY", default="claude")
# Secret reference of the API key that workers' requests carry. No worker gets it itself.
CLAUDE_API_KEY_REF = env.str("CLAUDE_API_KEY_REF", default="claude-api-key")
# Where the Messages API is. Empty: Anthropic's own address.
CLAUDE_BASE_URL = env.str("CLAUDE_BASE_URL", default="")
# What tokens of models cost, as JSON (docs/workers.md): with it we count what a worker costs.
CLAUDE_PRICES = env.str("CLAUDE_PRICES", default="")
# Which model workers use. Empty: the program's own choice.
CLAUDE_MODEL = env.str("CLAUDE_MODEL", default="")
# Hosts (HOST or HOST:PORT) that workers may reach beside their model and our MCP server.
CLAUDE_ALLOWED_HOSTS = env.list("CLAUDE_ALLOWED_HOSTS", default=[])
# `required` starts no worker with tools of its own outside a bubblewrap sandbox. `off` does, and is
# warned about: such a worker can read and write whatever this account can.
CLAUDE_SANDBOX = env.str("CLAUDE_SANDBOX", default="required")
# Where workers have their own HOME and their prompt, one directory a mission.
MISSIONS_DIR = Path(env.str("MISSIONS_DIR", default=str(DATA_DIR / "missions")))
# Where workers reach our own MCP server.
MCP_URL = env.str("MCP_URL", default="http://127.0.0.1:8000/mcp")
# A JSON file with further MCP servers that commands may name in `mcp_servers`.
MCP_SERVERS_FILE = env.str("MCP_SERVERS_FILE", default="")
# US dollars that the missions of one identity may cost a day (UTC).
MISSION_DAILY_USD_PER_IDENTITY = env.float("MISSION_DAILY_USD_PER_IDENTITY", default=50.0)
# US dollars that the missions of one command may cost a day (UTC).
MISSION_DAILY_USD_PER_COMMAND = env.float("MISSION_DAILY_USD_PER_COMMAND", default=25.0)
# How long a worker's question to the owner stays open, in days.
TOOL_CALL_APPROVAL_DAYS = env.int("TOOL_CALL_APPROVAL_DAYS", default=7)

# Who plans for mail that no rule matches: `claude` (a bounded mission, it costs money), or nobody.
PLANNER = env.str("PLANNER", default="")
# What asking for the plan of one message may cost, in US dollars.
PLANNER_MAX_USD = env.float("PLANNER_MAX_USD", default=0.5)
# How many turns a planner has.
PLANNER_MAX_TURNS = env.int("PLANNER_MAX_TURNS", default=6)

# --- Mail -----------------------------------------------------------------------------------------

# Messages above this size are stored by header with a marker, in bytes.
MAIL_MAX_BYTES = env.int("MAIL_MAX_BYTES", default=25 * 1024 * 1024)
# Plaintext IMAP and SMTP to a loopback test server. Never elsewhere.
MAIL_ALLOW_PLAINTEXT_LOOPBACK = env.bool("MAIL_ALLOW_PLAINTEXT_LOOPBACK", default=False)
# Automatic replies: at most this many to one sender a day.
AUTO_REPLIES_PER_SENDER_PER_DAY = env.int("AUTO_REPLIES_PER_SENDER_PER_DAY", default=1)
# Senders that change their address with every mail share a domain: at most this many a day to one.
AUTO_REPLIES_PER_DOMAIN_PER_DAY = env.int("AUTO_REPLIES_PER_DOMAIN_PER_DAY", default=5)
# Automatic replies: at most this many from one identity an hour; the rest waits its turn.
AUTO_REPLIES_PER_IDENTITY_PER_HOUR = env.int("AUTO_REPLIES_PER_IDENTITY_PER_HOUR", default=10)
# Drafts of one agent that wait for a person at the same time; a further one is refused.
OPEN_DRAFTS_PER_AGENT = env.int("OPEN_DRAFTS_PER_AGENT", default=20)

# Where the owner of OWNER_FINGERPRINT has his mail: he is told there what waits for a person, and
# may answer by signed mail.
OWNER_EMAIL = env.str("OWNER_EMAIL", default="")
# Empty: encrypted notices where OWNER_EMAIL and an owner key that can be encrypted to are there,
# else none. `encrypted`: the same, and the doctor calls it a fault where they are not. `bare`:
# notices that only say that something waits, with a link: no answer by mail. `off`: none.
OWNER_NOTICES = env.str("OWNER_NOTICES", default="")
# The account that notices leave by. Empty: the default identity's first one with an SMTP host.
OWNER_NOTICE_ACCOUNT = env.str("OWNER_NOTICE_ACCOUNT", default="")
# Minutes between two notices: what begins to wait in between goes into one.
OWNER_NOTICE_MINUTES = env.int("OWNER_NOTICE_MINUTES", default=10)
# Notices a day at most. What waits beyond that stands in the console only.
OWNER_NOTICES_PER_DAY = env.int("OWNER_NOTICES_PER_DAY", default=24)
# Where the owner reaches the console, for links in notices.
BASE_URL = env.str("BASE_URL", default="http://127.0.0.1:8000")

# How long an approval stays valid after *open for review*, in seconds (ADR-016).
APPROVAL_SECONDS = env.int("APPROVAL_SECONDS", default=300)
# After so many hours an operator logs in again, whatever happens.
ROOT_HOURS = env.int("ROOT_HOURS", default=12)
# After so many minutes without a console request as well.
ROOT_IDLE_MINUTES = env.int("ROOT_IDLE_MINUTES", default=60)

# --- People ---------------------------------------------------------------------------------------

AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",
    "django.contrib.auth.backends.ModelBackend",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
AXES_FAILURE_LIMIT = 10
AXES_COOLOFF_TIME = 0.25
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_VERBOSE = False
# Attempts are kept for throttling, not for editing.
AXES_ENABLE_ADMIN = False
LOGIN_URL = reverse_lazy("admin:login")
LOGIN_REDIRECT_URL = reverse_lazy("admin:index")

SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = HTTPS
CSRF_COOKIE_SECURE = HTTPS
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_HSTS_SECONDS = 31_536_000 if HTTPS else 0
# The proxy that ends TLS redirects and speaks for its other hosts (W005, W008, W021).
SECURE_SSL_REDIRECT = False
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W008", "security.W021"]
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if HTTPS else None
X_FRAME_OPTIONS = "DENY"

CONTENT_SECURITY_POLICY = policies.CONTENT_SECURITY_POLICY

LANGUAGE_CODE = "en"
# The operator's zone for times in the console; storage is always UTC.
TIME_ZONE = env.str("TIME_ZONE", default="UTC")
USE_I18N = True
FORMAT_MODULE_PATH = ["config.formats"]
USE_TZ = True

# --- Logs -----------------------------------------------------------------------------------------

# `console` for people, `json` for machines. Logs go to standard error.
LOG_FORMAT = env.str("LOG_FORMAT", default="console")
# DEBUG, INFO, WARNING or ERROR.
LOG_LEVEL = env.str("LOG_LEVEL", default="INFO")

from config.console import UNFOLD  # noqa: E402, F401
from config.logging import configure as _configure_logging  # noqa: E402

LOGGING = _configure_logging(LOG_FORMAT, LOG_LEVEL)
