# The lash command with an application: workers, the console and migrations run from the same image.
#
#   docker build --tag lash .
#   docker run --rm lash --help
#
# For an application of your own, start from this image and copy it to /app.
FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN python -m venv /venv && /venv/bin/pip install --no-cache-dir '.[postgres,web,otel]'

FROM python:3.13-slim
RUN useradd --system --uid 10001 --home-dir /app lash && mkdir /app /data && chown lash /data
COPY --from=build /venv /venv
COPY deploy/service.py /app/service.py
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 LASH_URL=sqlite:////data/lash.db
WORKDIR /app
USER 10001
VOLUME /data
ENTRYPOINT ["lash"]
