"""What the Prefect server of a test keeps of a flow run."""

from typing import Any


def read_artifacts(run_id: Any) -> dict[str, Any]:
    """Key -> artifact, those of its tasks among them."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId

    with get_client(sync_client=True) as client:
        wanted = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[run_id]))
        return {artifact.key: artifact for artifact in client.read_artifacts(artifact_filter=wanted)}
