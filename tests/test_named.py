import pytest

from roid_jax.envs import named


@pytest.mark.parametrize(
    ("name", "obs_dim", "action_dim"),
    [("hopper", 11, 3), ("probe:both", 1, 1), ("gymnasium:Pendulum-v1", 3, 1)],
)
def test_a_name_brings_its_environment(name, obs_dim, action_dim):
    spec = named.make(name).spec
    assert (spec.obs_dim, spec.action_dim) == (obs_dim, action_dim)


@pytest.mark.parametrize("name", ["ant", "probe:", "hopper:both", ""])
def test_an_unknown_name_is_refused_with_the_known_ones(name):
    with pytest.raises(ValueError, match=r"unknown environment .*choose from hopper, walker2d"):
        named.make(name)


@pytest.mark.parametrize("name", ["mjx:ant", "probe:ant", "gymnasium:Ant-v99"])
def test_an_unknown_one_of_a_known_kind_is_refused(name):
    with pytest.raises(ValueError, match=r"ant|Ant-v99"):
        named.make(name)
