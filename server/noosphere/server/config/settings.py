"""The one model that all groups of settings make together."""

from __future__ import annotations

from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from .auditing import AuditSettings
from .embedder import EmbedderSettings
from .extractor import ExtractorSettings
from .identity import IdentitySettings
from .limits import LimitSettings
from .observing import ObservingSettings
from .serving import ServingSettings
from .storing import StoringSettings
from .summariser import SummariserSettings
from .transition_policy import TransitionPolicySettings
from .transport import TransportSettings
from .weaviate import WeaviateSettings

ENV_PREFIX = "NOOSPHERE_"


# Pydantic takes the fields of the last base first: read from below, this is the order of flags and of `config show`.
class Settings(
    TransitionPolicySettings,
    ExtractorSettings,
    EmbedderSettings,
    SummariserSettings,
    LimitSettings,
    AuditSettings,
    ObservingSettings,
    WeaviateSettings,
    StoringSettings,
    IdentitySettings,
    TransportSettings,
    ServingSettings,
    BaseSettings,
):
    """Everything that an operator can choose about a server.

    Attributes and their defaults are documented on each field of the groups; ``noosphere config show`` prints
    the effective values.
    """

    model_config = SettingsConfigDict(extra="forbid", frozen=True, env_prefix=ENV_PREFIX)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Leaves the arguments as the only source; :func:`load` adds the others."""
        return (init_settings,)
