# SPDX-License-Identifier: Apache-2.0

# MUTANTS are names of patches in test/mutants, or patterns of them ('usage-* pools-0?-*'); all
# without it. RESUME=1 does not run those again that were killed before.
MUTANTS ?=
TIER ?= unit

.PHONY: mutants
mutants: $(FAKE_DRIVER) ## Say which tests notice small wrong edits, and write out/mutants.md (MUTANTS='PATTERN …', TIER=unit|core, RESUME=1)
	go run ./test/mutants/run -tier $(TIER) -packages '$(UNIT_PACKAGES)' -core-run '$(or $(CORE),.)' $(if $(RESUME),-resume) -- $(foreach m,$(MUTANTS),'$(m)')
