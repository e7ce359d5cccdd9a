# syntax=docker/dockerfile:1
# CPU:  docker build --build-arg TORCH_INDEX=<the CPU index on PyTorch's page "Get started"> -t palimpsest .
# CUDA: docker build -t palimpsest:cuda .   then   docker run --gpus all ...   (torch brings its own CUDA libraries)
# Run:  docker run --rm -it -u "$(id -u):$(id -g)" -e HOME=/home/me -v "$HOME/.palimpsest-home:/home/me" -v "$PWD:/work" palimpsest demo --dir demo
# Workers of a team run flows in the target `worker`: docker build --target worker -t palimpsest:worker .
# The home folder holds ledger, witnesses and the signing key: keep it outside the container, and back it up. Make it
# yourself (mkdir -m 700), or Docker makes it as root's.
ARG PYTHON=3.12
FROM python:${PYTHON}-slim AS wheel
WORKDIR /src
COPY pyproject.toml README.md LICENSE params.yaml ./
COPY src src
COPY stages stages
COPY flows flows
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /dist .

FROM python:${PYTHON}-slim AS base
ARG TORCH_INDEX=""
COPY constraints.txt /tmp/constraints.txt
COPY --from=wheel /dist /dist
RUN if [ -n "$TORCH_INDEX" ]; then pip install --no-cache-dir -c /tmp/constraints.txt --no-deps --index-url "$TORCH_INDEX" torch; fi \
    && wheel="$(ls /dist/*.whl)" \
    && pip install --no-cache-dir -c /tmp/constraints.txt "${wheel}[embedded,prefect,postgres,lora,endpoint]" \
    && rm -r /dist /tmp/constraints.txt \
    && useradd --create-home --uid 1000 me
# who runs it under another number has no name there, and DVC asks for one
ENV USER=me
USER 1000
WORKDIR /work

FROM base AS worker
CMD ["python", "-m", "prefect.engine"]

FROM base
ENTRYPOINT ["palimpsest"]
CMD ["--help"]
