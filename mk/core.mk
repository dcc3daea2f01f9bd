# SPDX-License-Identifier: Apache-2.0

# The core of integration: tests of test/integration that make test runs, never tried twice. Each
# stands for one thing that must work on a real API server; a new one is weighed against the time
# that make test may take.
CORE_TESTS := \
	TestMalformedTopologies \
	TestObjectOnWire \
	TestPolicies \
	TestForgedAllocations \
	TestNodeAgentRights \
	TestPoolKinds \
	TestShippedConfigurations \
	TestRequiredPods \
	TestGeneratedProfiles \
	TestScheduling \
	TestContract \
	TestHardwareFaults \
	TestGangs \
	TestGangFlows \
	TestExplain \
	TestWhatIfVictims \
	TestVerifierPublication \
	TestChecker \
	TestDemo
space := $(subst ,, )
CORE := ^($(subst $(space),|,$(strip $(CORE_TESTS))))$$
