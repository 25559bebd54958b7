"""How roid_jax installs: `pip install .`, with extras `cuda`, `mjx`, `bench` and `dev`."""

import pathlib
import re

from setuptools import find_packages, setup

HERE = pathlib.Path(__file__).parent
INIT = (HERE / "roid_jax" / "__init__.py").read_text(encoding="utf-8")

setup(
    name="roid_jax",
    version=re.search(r'__version__ = "(.+)"', INIT)[1],
    description="Information-directed offline-to-online reinforcement learning in JAX.",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    packages=find_packages(include=["roid_jax", "roid_jax.*"]),
    package_data={"roid_jax": ["data/embedded/*/data/*"]},
    python_requires=">=3.11",
    install_requires=[
        "absl-py>=2.1,<3",
        "chex>=0.1.90,<0.2",
        "distrax>=0.1.7,<0.2",
        "flax>=0.10.4,<0.13",
        "gymnasium>=1.0,<2",
        "h5py>=3.11,<4",
        "imageio>=2.34,<3",  # Gymnasium's MuJoCo environments import it
        "jax>=0.7,<0.11",
        "matplotlib>=3.9,<4",
        "minari>=0.5.3,<0.6",
        "ml_collections>=1.0,<2",
        "mujoco>=4.0,<5",
        "numpy>=2.0,<3",
        "optax>=0.2.4,<0.3",
        "orbax-checkpoint>=0.11,<0.13",
        "pandas>=2.2,<3",  # rliable needs arch 7, which does not bear pandas 3
        "pillow>=10,<14",
        "rich>=13.7,<16",
        "rliable>=1.2,<2",
        "scipy>=1.13,<2",
        "tensorboardX>=2.6,<3",
        "tensorstore>=0.1.71,<0.2",  # Orbax's
    ],
    extras_require={
        "cuda": ["jax[cuda12]>=0.7,<0.11"],
        "mjx": ["mujoco-mjx>=3.17,<4"],
        # d3rlpy pins gymnasium to 1.0.0: give this extra an environment of its own.
        "bench": ["d3rlpy>=2.8,<3", "torch>=2.5,<3"],
        "dev": [
            "hypothesis>=6.100,<7",
            "playwright>=1.49,<2",  # drives a browser that is there; it brings none here
            "pytest>=8,<10",
            "pytest-xdist>=3.6,<4",
            "ruff>=0.9,<0.18",
        ],
    },
    classifiers=[
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
