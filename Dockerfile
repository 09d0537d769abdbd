# The whole program in one image; the command is a word of manage.py. compose.yaml shows how to run it:
# without root, with a read-only root, without capabilities, GnuPG's homes in memory.
FROM python:3.11-slim-bookworm

RUN apt-get update \
    && apt-get install --yes --no-install-recommends gnupg gpgv bubblewrap \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /srv/countersign
COPY requirements/run.txt requirements/run.txt
RUN pip install --no-cache-dir --require-hashes -r requirements/run.txt

COPY manage.py pyproject.toml LICENSE ./
COPY guards guards
COPY approvals approvals
COPY teams teams
COPY mail mail
COPY pipelines pipelines
COPY config config
COPY templates templates
COPY static static
COPY deploy/entrypoint.sh deploy/entrypoint.sh

RUN python -m compileall -q guards approvals teams mail pipelines config \
    && groupadd --gid 10001 countersign \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /data countersign \
    && install -d -m 0700 -o countersign -g countersign /data

ENV DATA_DIR=/data GNUPGHOME=/run/gnupg PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 10001:10001
VOLUME /data
EXPOSE 8000
ENTRYPOINT ["/srv/countersign/deploy/entrypoint.sh"]
CMD ["web", "--host", "0.0.0.0"]
