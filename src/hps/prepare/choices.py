"""What the user has chosen: .env, and over it the exported variables."""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dotenv import dotenv_values
from pydantic import ValidationError

from hps import compose_gpus, settings
from hps.compose_settings import ComposeSettings
from hps.prepare.catalogue import PARTS
from hps.prepare.hubs import HubName
from hps.prepare.problems import PrepareError
from hps.settings import OFFICIAL_WITHOUT_EFFECT, PREFIX, Settings, SettingsError

RUNTIMES: Final = ("", "cpu", "paddlex")
_HUBS: Final[Mapping[str, tuple[HubName, ...]]] = {
    "": ("huggingface", "modelscope"),
    "huggingface": ("huggingface",),
    "modelscope": ("modelscope",),
}


@dataclass(frozen=True, slots=True)
class Choices:
    """values: of all variables that are set."""

    root: Path
    values: Mapping[str, str]
    settings: Settings
    compose: ComposeSettings

    @property
    def release(self) -> str:
        return self.settings.pipeline_name

    @property
    def runtime(self) -> str:
        return self.compose.runtime or ""

    @property
    def models(self) -> Path:
        return self.root / self.compose.models_dir

    @property
    def devices(self) -> tuple[str, ...]:
        """As nvidia-smi numbers them; none without a GPU."""
        if self.runtime == "cpu":
            return ()
        return tuple(compose_gpus.parsed(self.compose.device_ids or self.compose.device_id))

    @property
    def hubs(self) -> tuple[HubName, ...]:
        """Those to ask, in this order; none when the models come from a folder."""
        return _HUBS.get(self.compose.model_source or "", ())

    @property
    def folder(self) -> Path | None:
        """Where the models come from when it is no hub."""
        return None if self.hubs else self.root / str(self.compose.model_source)

    def address(self, hub: HubName) -> str:
        return self.compose.huggingface_url if hub == "huggingface" else self.compose.modelscope_url

    @property
    def sdk_folder(self) -> str:
        """HPS_SDK_DIR, below the kit; one that an earlier run wrote for another release counts as unset."""
        written = {folder(release) for release in PARTS for folder in (self._official_sdk, self._prepared)}
        given = self.values.get("HPS_SDK_DIR")
        if given and given not in written:
            return given
        return self._official_sdk(self.release) if self.runtime == "paddlex" else self._prepared(self.release)

    @property
    def sdk_url(self) -> str:
        """Of the official SDK's archive."""
        version = self.values.get("HPS_SDK_VERSION") or f"v{self.compose.paddlex_version}"
        return f"{self.compose.sdk_url}/{version}/{Path(self.sdk_folder).name}.tar.gz"

    def _official_sdk(self, release: str) -> str:
        return f"paddlex_hps_{release}_sdk"

    def _prepared(self, release: str) -> str:
        return f"{self.compose.models_dir.rstrip('/')}/{release}"

    def is_set(self, variable: str) -> bool:
        return bool(self.values.get(variable))


def read(root: Path, env_text: str, environ: Mapping[str, str]) -> Choices:
    """Raises PrepareError that names every unknown or invalid variable."""
    exported = {name: value for name, value in environ.items() if name.startswith(PREFIX) and value}
    from_file = dotenv_values(stream=io.StringIO(env_text))
    values = {name: value for name, value in from_file.items() if name.startswith(PREFIX) and value} | exported
    known = {name: value for name, value in values.items() if name not in OFFICIAL_WITHOUT_EFFECT}
    fields = {name.removeprefix(PREFIX).lower(): value for name, value in values.items()}
    try:
        ours = settings.load(dict(known))
        compose = ComposeSettings(**{n: v for n, v in fields.items() if n in ComposeSettings.model_fields})
    except SettingsError as error:
        raise PrepareError(str(error)) from error
    except ValidationError as error:
        problems = [f"{settings.variable(str(e['loc'][0]))}: {e['msg']}" for e in error.errors(include_input=False)]
        raise PrepareError("invalid setting: " + "; ".join(problems)) from None
    try:
        compose_gpus.parsed(compose.device_ids or compose.device_id)
    except ValueError as error:
        raise PrepareError(str(error)) from error
    if (compose.runtime or "") not in RUNTIMES:
        raise PrepareError(f"HPS_RUNTIME is {compose.runtime}; it can be cpu or paddlex, or be left out")
    return Choices(root, values, ours, compose)
