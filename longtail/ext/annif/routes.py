"""The REST API of Annif 1.4 (`/v1/projects`), so that its clients and tools can ask this service.

A project is a model version and a scorer. Errors are problem documents with the statuses and titles
of Annif.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated
from urllib.parse import unquote_to_bytes

import fastapi
from fastapi import APIRouter, Depends, Request
from starlette.exceptions import HTTPException

from longtail.ext.annif.schemas import (
    ApiInfo,
    DocumentBatch,
    DocumentSuggestions,
    IndexedDocument,
    LearningBatch,
    ProjectBackend,
    ProjectInfo,
    ProjectList,
    SuggestForm,
    Suggestion,
    SuggestionList,
    SuggestOptions,
    Vocabulary,
    VocabularyList,
)
from longtail.models.errors import RequestError
from longtail.models.feedback import sha256_of
from longtail.models.results import ScoredLabel
from longtail.service.http.deps import Service, ServiceDep, media_type_of
from longtail.service.http.feedback import store_feedback
from longtail.service.http.json_body import (
    JsonBody,
    answer_request,
    off_the_loop,
    score_of,
    validated,
    written_off_the_loop,
)
from longtail.service.http.problem_handlers import BodyError, responses
from longtail.service.schemas.feedback import FeedbackEntry
from longtail.service.schemas.requests import PredictRequest
from longtail.service.versions.serving import ServedModel, Serving
from longtail.service.wire.problems import Kind, KindError

NAME = "longtail"
"""Name of the project for requests that name no version, and prefix of all other names."""
FORM = "application/x-www-form-urlencoded"
_MAX_FIELDS = 100
_PIECE_BYTES = 2**16
_NOT_FOUND = Kind("project-not-found", 404, "Project not found")
_NO_LEARNING = Kind("learning-not-allowed", 403, "Learning not allowed")
_NO_LANGUAGE = Kind("language-not-supported", 400, "Bad Request")

router = APIRouter(prefix="/v1", tags=["Annif"])


@dataclass(frozen=True, slots=True)
class Project:
    """A model and a scorer under a name.

    Attributes:
        name: Displayed name.
        model: The model that answers, unless another one shares its traffic.
        version: Its number if the name has one; None: the version that the service serves.
        scorer: Name of the scorer; None: the model's default.
        is_listed: Whether the list shows it.
    """

    name: str
    model: ServedModel
    version: int | None
    scorer: str | None
    is_listed: bool


async def _require_learning(project_id: str, service: ServiceDep) -> None:
    """Refuse unknown projects, and all projects where no feedback is kept."""
    _project(service, project_id)
    if service.feedback is None:
        raise KindError(
            _NO_LEARNING,
            f"Project '{project_id[:100]}' is not configured to allow learning via API",
        )


@router.get("/", summary="Annif: the service", responses=responses())
async def show_info(request: Request) -> ApiInfo:
    """Return the name of the API and the release of this service."""
    return ApiInfo(title="Annif REST API", version=request.app.version)


@router.get("/vocabs", summary="Annif: vocabularies", responses=responses(503))
async def list_vocabs(service: ServiceDep) -> VocabularyList:
    """Return one vocabulary for each loaded version, whose labels may differ."""
    models = service.manager.serving().models
    return VocabularyList(
        vocabs=[_vocabulary(service, models[number]) for number in sorted(models)]
    )


@router.get("/projects", summary="Annif: projects", responses=responses(503))
def list_projects(service: ServiceDep) -> ProjectList:
    """Return a project for what the service serves, one for each scorer, and one for each version.

    `longtail-3-sparse`, a scorer of a version, is a project too, but not in the list.
    """
    projects = projects_of(service.manager.serving())
    return ProjectList(
        projects=[_info(service, name, one) for name, one in projects.items() if one.is_listed]
    )


@router.get(
    "/projects/{project_id}", summary="Annif: one project", responses=responses(404, 422, 503)
)
def show_project(project_id: str, service: ServiceDep) -> ProjectInfo:
    """Return the description of a project."""
    return _info(service, project_id, _project(service, project_id))


@router.post(
    "/projects/{project_id}/suggest",
    summary="Annif: labels of a text",
    responses=responses(400, 404, 413, 415, 422, 429, 503, 504),
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {FORM: {"schema": {"$ref": "#/components/schemas/SuggestForm"}}},
        }
    },
)
async def suggest(project_id: str, request: Request, service: ServiceDep) -> SuggestionList:
    """Return the best labels of a text; none where it is blank."""
    form = await _read_form(request)
    (results,) = await _suggest(request, service, project_id, [form.text], form)
    return SuggestionList(results=results)


@router.post(
    "/projects/{project_id}/suggest-batch",
    summary="Annif: labels of several texts",
    responses=responses(400, 404, 413, 415, 422, 429, 503, 504),
)
async def suggest_batch(
    project_id: str,
    body: Annotated[DocumentBatch, Depends(JsonBody(DocumentBatch))],
    request: Request,
    service: ServiceDep,
    options: Annotated[SuggestOptions, fastapi.Query()],
) -> list[DocumentSuggestions]:
    """Return the best labels of up to 32 texts, each with its id."""
    texts = [document.text for document in body.documents]
    found = await _suggest(request, service, project_id, texts, options)
    return [
        DocumentSuggestions(results=results, document_id=document.document_id)
        for results, document in zip(found, body.documents, strict=True)
    ]


@router.post(
    "/projects/{project_id}/learn",
    summary="Annif: learn",
    description="Keep texts with their right labels as feedback (`POST /v1/feedback`), from which "
    "a new version can be trained; no model changes by itself. Refused (403), as by Annif for "
    "projects that do not learn online, unless the service keeps feedback.",
    responses=responses(400, 403, 404, 409, 413, 415, 422, 429, 503, 504),
    status_code=204,
    dependencies=[Depends(_require_learning)],
)
async def learn(
    project_id: str,
    body: Annotated[LearningBatch, Depends(JsonBody(LearningBatch))],
    request: Request,
    service: ServiceDep,
) -> None:
    """Keep texts with their labels, the same ones once."""
    version = _project(service, project_id).model.version
    size = sum(len(document.text) for document in body.root)
    said = await off_the_loop(size, lambda: [_feedback_of(each, version) for each in body.root])
    if said:
        try:
            await store_feedback(request, service, said)
        except RequestError as error:  # it names the fields of /v1/feedback
            where = str(error).replace("entries/", "", 1).replace("/accepted:", "/subjects:", 1)
            raise RequestError(where) from error


def projects_of(serving: Serving) -> Mapping[str, Project]:
    """Return all projects by their ids, in the order to list them."""
    default = serving.models[serving.default]
    projects = _named(NAME, "Longtail", default, None, lists_scorers=True)
    for number in sorted(serving.models):
        name, title = f"{NAME}-{number}", f"Longtail version {number}"
        projects |= _named(name, title, serving.models[number], number, lists_scorers=False)
    return projects


def parse_form(body: bytes) -> dict[str, str]:
    """Return the fields of a form (`application/x-www-form-urlencoded`) in UTF-8.

    Of several fields with the same name the last one counts.
    """
    parts = body.split(b"&", _MAX_FIELDS)
    if len(parts) > _MAX_FIELDS:
        raise BodyError(400, f"The form has more than {_MAX_FIELDS} fields; send fewer")
    fields = (part.replace(b"+", b" ").partition(b"=") for part in parts if part)
    try:
        return {_unescaped(name).decode(): _unescaped(value).decode() for name, _, value in fields}
    except UnicodeDecodeError as error:
        raise BodyError(400, "The form is not in UTF-8; send it in UTF-8") from error


def _unescaped(value: bytes) -> bytes:
    """Return `unquote_to_bytes`, which makes an object of each escape, a piece at a time."""
    pieces, start = [], 0
    while start < len(value):
        end = start + _PIECE_BYTES
        escape = value.rfind(b"%", end - 2, end)  # it would be cut in two
        end = escape if escape > start else end
        pieces.append(unquote_to_bytes(value[start:end]))
        start = end
    return b"".join(pieces)


def _named(
    name: str, title: str, model: ServedModel, version: int | None, *, lists_scorers: bool
) -> dict[str, Project]:
    """Return the project of a model and those of its scorers."""
    projects = {name: Project(title, model, version, None, is_listed=True)}
    for scorer in (*model.predictor.scorers.names, *model.predictor.left_out):
        projects[f"{name}-{scorer}"] = Project(
            f"{title}, {scorer}", model, version, scorer, is_listed=lists_scorers
        )
    return projects


def _project(service: Service, project_id: str) -> Project:
    project = projects_of(service.manager.serving()).get(project_id)
    if project is None:
        raise KindError(_NOT_FOUND, f"Project '{project_id[:100]}' not found")
    return project


def _info(service: Service, project_id: str, project: Project) -> ProjectInfo:
    language = _language(service, project.model)
    scorer = project.scorer or project.model.predictor.scorers.default
    return ProjectInfo(
        project_id=project_id,
        name=project.name,
        language=language,
        backend=ProjectBackend(backend_id=scorer),
        vocab=_vocabulary(service, project.model),
        vocab_language=language,
        is_trained=True,
        modification_time=service.manager.registry.published_at(project.model.version),
    )


def _language(service: Service, model: ServedModel) -> str:
    """Return the language of a project: as the operator set it, else as the model tells."""
    shown = model.predictor.catalogue.shown_language
    return service.settings.language or shown or next(iter(model.languages), "en")


def _vocabulary(service: Service, model: ServedModel) -> Vocabulary:
    return Vocabulary(
        vocab_id=f"{NAME}-{model.version}",
        languages=sorted({_language(service, model), *model.predictor.catalogue.languages}),
        size=len(model.predictor.catalogue),
        loaded=True,
    )


async def _suggest(
    request: Request,
    service: Service,
    project_id: str,
    texts: Sequence[str],
    options: SuggestOptions,
) -> list[list[Suggestion]]:
    project = _project(service, project_id)
    named = project.model.predictor.catalogue.languages
    default = _language(service, project.model)
    language = options.language or default
    if language not in {default, *named}:
        raise KindError(_NO_LANGUAGE, f'language "{language[:100]}" not supported by vocabulary')
    asked = [text for text in texts if text.strip()]
    if not options.limit or not asked:
        return [[] for _ in texts]
    wanted, most = (
        min(options.limit, len(project.model.predictor.catalogue)),
        service.settings.max_k,
    )
    if wanted > most:
        raise RequestError(f"limit is {options.limit}; expected 0 to {most}")
    make_body = partial(
        PredictRequest,
        texts=asked,
        k=wanted,
        scorer=project.scorer,
        version=project.version,
        language=language if language in named else None,
    )
    body = await off_the_loop(sum(map(len, asked)), make_body)
    found = (await answer_request(request, service, body)).predictions
    suggested = await written_off_the_loop(
        found, lambda: iter([_suggestions(each.labels, options.threshold) for each in found])
    )
    return [next(suggested) if text.strip() else [] for text in texts]


def _feedback_of(document: IndexedDocument, version: int) -> FeedbackEntry:
    """Return a document as feedback; its id follows from its content, so that it is stored once."""
    accepted = list(dict.fromkeys(subject.uri for subject in document.subjects))
    content = json.dumps([document.document_id, document.text, sorted(accepted)])
    return FeedbackEntry(
        id=f"annif-{sha256_of(content)}",
        text=document.text,
        document_id=document.document_id,
        accepted=accepted,
        version=version,
    )


def _suggestions(labels: Sequence[ScoredLabel], threshold: float) -> list[Suggestion]:
    return [
        Suggestion(uri=label.id, label=label.name, notation=None, score=score)
        for label in labels
        if (score := score_of(label)) >= threshold
    ]


async def _read_form(request: Request) -> SuggestForm:
    if media_type_of(request) != FORM:
        raise HTTPException(415, f"Send the body with the header 'Content-Type: {FORM}'")
    content = await request.body()
    # The escapes of a long text take a second.
    return await off_the_loop(len(content), lambda: validated(SuggestForm, parse_form(content)))
