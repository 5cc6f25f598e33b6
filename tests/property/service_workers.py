"""Workers, honest and unlucky ones, and the schedule that ends what they leave behind."""

from contextlib import suppress
from typing import Any

from ckptguard.errors import LeaseLostError
from ckptguard.model.finding import Basis, FindingCode
from ckptguard.model.manifest import Origin
from ckptguard.model.policy import Depth
from ckptguard.model.report import FileEvidence, Report, report_to_json
from ckptguard.model.service import AttemptEnding
from ckptguard.model.verdict import Provenance
from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.leasing.capabilities import Capabilities
from ckptguard_api.leasing.claim import claim
from ckptguard_api.leasing.expiry import end_expired
from ckptguard_api.leasing.lease import LeaseKey
from ckptguard_api.leasing.release import release
from ckptguard_api.leasing.verdict import give_verdict
from ckptguard_api.use_cases.announce import mark_incomplete
from ckptguard_api.use_cases.retries import queue_retries
from tests.leased_service import files_of, invalid, unknown, valid
from tests.property.leasing_model import ModelVerdict, in_force
from tests.property.service_model import (
    MAX_FAILED_ATTEMPTS,
    Save,
    lifecycle,
)
from tests.property.service_stage import CONTENTS, DEVICES, SETTINGS, WORKERS, Stage, manifest_from


class Workers(Stage):
    """Whoever looks at bytes."""

    def take(self) -> None:
        """A worker asks for work; leases that are over end first."""
        worker = self.chance.choice(WORKERS)
        lease = claim(
            self.services, worker=worker, capabilities=Capabilities(stores=("demo",)), actor=SERVICE
        )
        self._end_overdue()
        if lease is None:
            return
        save = self.model.saves[lease.checkpoint.id]
        assert save["place"].startswith("demo/"), "a store that the worker does not map"
        open_one = save["validation"]
        assert (open_one["id"], open_one["state"]) == (lease.validation.id, "queued")
        assert open_one["depth"] == lease.validation.depth
        open_one |= {"state": "running", "lease": lease.id}
        self.leases[lease.id] = {
            "save": save,
            "validation_id": lease.validation.id,
            "depth": lease.validation.depth,
            "worker": worker,
            "key": LeaseKey(id=lease.id, token=lease.token),
            "ends_at": lease.expires_at,
        }
        self._tell(f"{worker} takes {save['id']}")

    def work(self) -> None:
        """A worker takes something, and judges it at once."""
        self.take()
        self.judge()

    def judge(self) -> None:
        """A worker gives its verdict, if it still may."""
        if not self.leases:
            return
        lease_id = self.chance.choice(sorted(self.leases))
        lease, save = self.leases[lease_id], self.leases[lease_id]["save"]
        report, verdict = self._report(save, lease)
        document = report_to_json(report)
        given = self._call(
            lambda: give_verdict(self.services, lease["key"], report=document, actor=SERVICE),
            is_refused=not self._is_live(lease_id),
        )
        if given is None:
            return
        del self.leases[lease_id]
        is_proven = report.provenance is Provenance.PROVEN and all(save["parts"].values())
        lowered = Provenance.UNCHANGED if report.provenance is Provenance.PROVEN else report.provenance
        provenance = (report.provenance if is_proven else lowered).value
        facts = {"provenance": provenance, "device": report.device, "at": self.clock.now()}
        self.model.judge(save, verdict, **facts)
        current = in_force(save["history"])
        assert given.is_in_force == (current is verdict)
        self._tell(f"{lease['worker']} on {save['id']}: {verdict.verdict}, in force: {given.is_in_force}")

    def give_back(self) -> None:
        """A worker drains, or fails."""
        if not self.leases:
            return
        lease_id = self.chance.choice(sorted(self.leases))
        ending = self.chance.choice((AttemptEnding.DRAINED, AttemptEnding.FAILED))
        is_live = self._is_live(lease_id)
        key = self.leases[lease_id]["key"]
        with suppress(LeaseLostError):  # cancelled: nothing is left to do; over: refused
            release(self.services, key, ending=ending, reason="so it is", actor=SERVICE)
        if is_live:
            self._end(lease_id, is_counted=ending is AttemptEnding.FAILED)
            del self.leases[lease_id]

    def forget(self) -> None:
        """A worker crashes: its lease goes on until it expires."""
        if self.leases:
            self.leases[self.chance.choice(sorted(self.leases))]["is_forgotten"] = True

    def expire(self) -> None:
        """The schedule does its rounds."""

        def rounds() -> None:
            with self.database.write() as tx:
                end_expired(tx, SETTINGS, limit=100)
                mark_incomplete(tx, limit=100)
                cursor = 0
                while (done := queue_retries(tx, cursor)).is_more:
                    cursor = done.cursor

        self._call(rounds, on_done=self._note_rounds)

    def wait_for_retry(self) -> None:
        """Time passes until the service asks for something again."""
        waiting = [save["retry"]["at"] for save in self._saves() if save["retry"] is not None]
        if waiting:
            self.clock.advance(max(0.0, (min(waiting) - self.clock.now()).total_seconds()))
            self.expire()

    def _note_rounds(self) -> None:
        self._end_overdue()
        for save in self._saves():
            if lifecycle(save) == "announced" and save["alive_until"] <= self.clock.now():
                save["alive_until"] = None
        self._note_retries()

    def _note_retries(self) -> None:
        query = "SELECT checkpoint_id, id, depth FROM validations WHERE state = 'queued' AND reason = 'retry'"
        queued = {row[0]: row[1:] for row in self.raw.execute(query).fetchall()}
        for save in self.model.due(self.clock.now()):
            validation_id, depth = queued[save["id"]]
            assert depth == save["retry"]["depth"], "as deep as it was asked for last"
            self.model.queue(save, validation_id, depth, is_retry=True)
            self._tell(f"{save['id']} is asked for again")
        known = {save["id"] for save in self._saves() if save["validation"] is not None}
        assert queued.keys() <= known, "asked for again what is not due"

    def _end_overdue(self) -> None:
        for lease_id, lease in list(self.leases.items()):
            open_one = lease["save"]["validation"]
            is_held = open_one is not None and open_one.get("lease") == lease_id
            if is_held and lease["ends_at"] <= self.clock.now():
                self._end(lease_id, is_counted=True)

    def _end(self, lease_id: int, *, is_counted: bool) -> None:
        lease = self.leases[lease_id]
        save, open_one = lease["save"], lease["save"]["validation"]
        open_one |= {"state": "queued", "lease": None, "failed": open_one["failed"] + is_counted}
        if open_one["failed"] >= MAX_FAILED_ATTEMPTS:
            verdict = _not_found_out(open_one["id"], open_one["depth"])
            facts = {"provenance": "unproven", "device": None, "at": self.clock.now()}
            self.model.judge(save, verdict, **facts)

    def _is_live(self, lease_id: int) -> bool:
        lease = self.leases[lease_id]
        open_one = lease["save"]["validation"]
        is_held = open_one is not None and open_one.get("lease") == lease_id
        return is_held and self.clock.now() < lease["ends_at"]

    def _report(self, save: Save, lease: dict[str, Any]) -> tuple[Report, ModelVerdict]:
        """Return what an honest worker would find, or an unlucky one."""
        chance, depth, content = self.chance, Depth(lease["depth"]), save["content"]
        checks = chance.choice((1, 1, 1, 2))
        changes: dict[str, Any] = {
            "files": _files_of(save, has_checksums=depth is not Depth.STRUCTURE),
            "versions": {"checks": str(checks)},
            "provenance": chance.choice(list(Provenance)),
            "device": chance.choice(DEVICES),
        }
        luck = chance.random()
        if luck < 0.1:
            report = unknown(**changes | {"files": ()})
        elif luck < 0.18:
            report = unknown(FindingCode.UNSTABLE_READ, **changes)
        elif luck < 0.22:
            report = invalid(Basis.POLICY, **changes)
        elif "bent" in content and luck < 0.7:
            report = invalid(**changes)
        else:
            reached = Depth.CONTENT if depth is Depth.LOAD and chance.random() < 0.2 else depth
            report = valid(reached, **changes)
        judgement = report.judgement
        return report, ModelVerdict(
            validation_id=lease["validation_id"],
            verdict=judgement.verdict.value,
            basis=judgement.basis.value if judgement.basis else None,
            assurance=judgement.assurance.value if judgement.assurance else None,
            depth=depth.value,
            content=content,
            checks=checks,
            worker=lease["worker"],
            is_about_bytes=any(one.code is FindingCode.UNSTABLE_READ for one in report.findings),
        )

    def change_bytes(self) -> None:
        """Bytes become others, or come back, where no manifest says what they are; nobody is told."""
        unlisted = [one for one in self._saves() if one["parts"] and not one["has_manifest"]]
        if unlisted:
            save = self.chance.choice(unlisted)
            save["content"] = self.chance.choice((*CONTENTS, "other"))


def _files_of(save: Save, *, has_checksums: bool) -> tuple[FileEvidence, ...]:
    """Return what a worker sees: of a save with a manifest, the files that it lists."""
    content = save["content"]
    if not save["has_manifest"]:
        return files_of(content, version=content, has_checksums=has_checksums)
    return tuple(
        FileEvidence(
            path=f"{part}/{file.path}" if part else file.path,
            length_bytes=file.length_bytes,
            checksum=file.checksum if has_checksums else None,
            version=content,
        )
        for part in save["parts"]
        for file in manifest_from(Origin.SAVE).files
    )


def _not_found_out(validation_id: int, depth: str) -> ModelVerdict:
    return ModelVerdict(
        validation_id=validation_id, verdict="UNKNOWN", basis=None, assurance=None,
        depth=depth, content="", checks=0, worker=None,
    )  # fmt: skip
