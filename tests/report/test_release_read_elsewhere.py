"""Tools that we did not write read the folder of a release: mlcroissant, prov, securesystemslib."""

import json

import mlcroissant
import pytest
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from prov.model import ProvActivity, ProvDocument, ProvEntity
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey

from palimpsest.records.write import read_synthetic
from palimpsest.report.release.bundle import CROISSANT, ENVELOPE, KEY, PROVENANCE
from tests.report.release_world import VARIANT, Workspace, released


@pytest.fixture(scope="module")
def made() -> Workspace:
    return released()


def test_mlcroissant_finds_no_fault_and_loads_the_rows(made: Workspace):
    folder = made.folder / "release"
    data = mlcroissant.Dataset(jsonld=folder / CROISSANT)
    assert (data.metadata.issues.errors, data.metadata.issues.warnings) == (set(), set())
    rows = [{name.partition("/")[2]: value.decode() for name, value in row.items()} for row in data.records(VARIANT)]
    schema = made.params.dataset
    kept = read_synthetic(folder / "data" / VARIANT, schema.text, schema.label)
    assert rows == [{schema.text: one.text, schema.label: one.label} for one in kept]


def test_prov_reads_who_made_what_of_what(made: Workspace):
    document = ProvDocument.deserialize(made.folder / "release" / PROVENANCE, format="json")
    activities = {str(one.identifier) for one in document.get_records(ProvActivity)}
    entities = {str(one.identifier) for one in document.get_records(ProvEntity)}
    assert {f"p:select@{VARIANT}", "p:release"} <= activities
    assert {"p:input/private", f"p:release/data/{VARIANT}.parquet"} <= entities
    assert ProvDocument.deserialize(content=document.serialize(), format="json") == document


def test_securesystemslib_verifies_the_envelope_and_no_changed_one(made: Workspace):
    folder = made.folder / "release"
    body = json.loads((folder / ENVELOPE).read_bytes())
    keyid = body["signatures"][0]["keyid"]
    key = SSlibKey.from_crypto(load_pem_public_key((folder / KEY).read_bytes()), keyid=keyid)
    envelope = Envelope.from_dict(body)
    assert envelope.verify([key], 1) == {keyid: key}
    envelope.payload += b" "
    with pytest.raises(VerificationError):
        envelope.verify([key], 1)
