"""/v2/glossaries and /v2/glossary-language-pairs: there are none, but clients ask before they translate."""

from fastapi import APIRouter

from attendo.serve.deepl.replies import GlossariesReply, GlossaryPairsReply


def routes() -> APIRouter:
    router = APIRouter()

    @router.get("/glossary-language-pairs")
    async def glossary_pairs() -> GlossaryPairsReply:
        return GlossaryPairsReply()

    @router.get("/glossaries")
    async def glossaries() -> GlossariesReply:
        return GlossariesReply()

    return router
