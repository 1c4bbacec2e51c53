"""The images that docker-compose.yml names, built where no registry of images is reached: ours from the Dockerfile as it
is, the others as stand-ins (postgres/, kafka/) under the official names."""
import os
import re
import shutil

import base_image
import kafka

HERE = os.path.dirname(os.path.abspath(__file__))


def names_in(compose_file):
    """{"postgres": "postgres:15", …}: the part before the tag, without the owner, and the whole name."""
    with open(compose_file, encoding="utf-8") as file:
        images = re.findall(r"^\s*image:\s*(\S+)$", file.read(), re.MULTILINE)
    return {image.split(":")[0].split("/")[-1]: image for image in images}


def _build(engine, name, folder, *options):
    arguments = [word for pair in base_image.proxy_environment().items() for word in ("--build-arg", "=".join(pair))]
    engine.docker("build", "--quiet", "--network", "host", "--tag", name, *arguments, *options, folder, limit=900)


def _kafka_context(folder, image, tell):
    """The stand-in's folder with the jars in it; they must be of the version that the image's tag promises."""
    jars = kafka.jars(tell)
    version = image.split(":")[1]
    if not os.path.exists(f"{jars}/kafka_2.13-{version}.jar"):
        raise RuntimeError(f"docker-compose.yml names {image}, but tests/support/kafka/pom.xml fetches another version")
    shutil.copytree(f"{HERE}/kafka", folder)
    shutil.copytree(jars, f"{folder}/libs")
    return folder


def build(engine, project, tell):
    """Builds everything that project/docker-compose.yml names; what has not changed comes from the engine's cache."""
    names = names_in(f"{project}/docker-compose.yml")
    base_image.load(engine, tell)
    tell(f"building {' and '.join(names.values())}")
    _build(engine, names["postgres"], f"{HERE}/postgres")
    _build(engine, names["kafka"], _kafka_context(f"{engine.run_folder}/kafka", names["kafka"], tell))
    # The first stage gets a name too: an image without one is pruned, and with it the cache of what apt installed.
    _build(engine, "leasehold-builder:local", project, "--target", "builder")
    _build(engine, names["leasehold"], project)
    engine.docker("image", "prune", "--force")
