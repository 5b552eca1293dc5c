"""The package for Spack, of a checkout: `spack dev-build py-pcircle@1.0.0.dev0`."""

from spack.package import *


class PyPcircle(PythonPackage):
    """Parallel file tools on a work-stealing engine, over MPI or local processes."""

    license("Apache-2.0", checked_by="the pcircle authors")

    version("1.0.0.dev0")

    variant("plot", default=False, description="Pictures of profiles")
    variant("parquet", default=False, description="Listings as Parquet")
    variant("notebook", default=False, description="Tasks that are defined at a prompt")

    depends_on("c", type="build")
    depends_on("python@3.10:", type=("build", "run"))
    depends_on("py-setuptools@77:", type="build")

    depends_on("py-lru-dict@1.3:", type=("build", "run"))
    depends_on("py-mpi4py@4.1:", type=("build", "run"))
    depends_on("py-msgspec@0.19:", type=("build", "run"))
    depends_on("py-numpy@1.26:", type=("build", "run"))
    depends_on("py-rich@13.7:", type=("build", "run"))
    depends_on("py-xxhash@3.4.1:", type=("build", "run"))

    depends_on("py-matplotlib@3.8:", type=("build", "run"), when="+plot")
    depends_on("py-pyarrow@14:", type=("build", "run"), when="+parquet")
    depends_on("py-cloudpickle@3:", type=("build", "run"), when="+notebook")

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def check_command(self):
        """The tools start."""
        Executable(self.prefix.bin.fcp)("--version")
