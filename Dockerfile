# Image of a CPU server. Run in the root of the project:
#     docker build -t attendo .
#     docker run --rm -p 127.0.0.1:8800:8800 -v ./runs/demo/model:/models/model:ro attendo
# podman accepts the same arguments.

FROM python:3.11-slim AS build
# Version and package index of torch. The default build includes CUDA; set an index with CPU builds.
ARG TORCH=torch==2.13.0
ARG TORCH_INDEX=
WORKDIR /build
RUN python -m venv /opt/attendo
ENV PATH=/opt/attendo/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
COPY constraints.txt ./
# Install torch first, so that changes of the project do not rebuild this layer.
RUN pip install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} --constraint constraints.txt "$TORCH"
COPY pyproject.toml README.md LICENSE ./
COPY recipes ./recipes
COPY attendo ./attendo
RUN pip install --constraint constraints.txt '.[serve,export,detect]'

FROM python:3.11-slim
COPY --from=build /opt/attendo /opt/attendo
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin attendo
ENV PATH=/opt/attendo/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /models
# Mount models here; a read-only mount works.
VOLUME /models
EXPOSE 8800
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=120s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8800/readyz', timeout=2)"]
# Listen on all addresses of the container. --allow-host sets the host name that other containers use. Add models and
# further options after the image name.
ENTRYPOINT ["attendo", "serve", "--host", "0.0.0.0", "--port", "8800", "--allow-host", "attendo", "--log-format", "json"]
CMD ["/models/model"]
