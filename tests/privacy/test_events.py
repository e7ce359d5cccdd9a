"""Events survive their JSON form."""

import json

import dp_accounting as dpa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.privacy import events
from palimpsest.privacy.events import BoundedRangeDpEvent, DiscreteGaussianDpEvent

SCALE = st.floats(1e-3, 1e6)
LEAF = st.one_of(
    st.builds(dpa.GaussianDpEvent, SCALE),
    st.builds(dpa.LaplaceDpEvent, SCALE),
    st.builds(DiscreteGaussianDpEvent, SCALE),
    st.builds(BoundedRangeDpEvent, SCALE),
    st.builds(dpa.ZCDpEvent, SCALE, SCALE),
    st.builds(dpa.NoOpDpEvent),
    st.builds(dpa.NonPrivateDpEvent),
)
EVENT = st.recursive(
    LEAF,
    lambda inner: st.one_of(
        st.builds(dpa.PoissonSampledDpEvent, st.floats(0.0, 1.0), inner),
        st.builds(dpa.SelfComposedDpEvent, inner, st.integers(1, 10**6)),
        st.builds(dpa.ComposedDpEvent, st.lists(inner, max_size=3)),
    ),
    max_leaves=6,
)


@given(EVENT)
def test_an_event_survives_json_text_exactly(event):
    assert events.from_json(json.loads(json.dumps(events.to_json(event)))) == event


def test_an_event_without_a_json_form_is_refused():
    with pytest.raises(ValueError, match="RandomizedResponse"):
        events.to_json(dpa.RandomizedResponseDpEvent(0.5, 2))
