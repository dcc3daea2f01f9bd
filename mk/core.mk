# SPDX-License-Identifier: Apache-2.0

# The core of integration: tests of test/integration that make test runs, never tried twice. Each
# stands for one thing that must work on a real API server; a new one is weighed against the time
# that make test may take.
CORE_TESTS := \
	TestTheAPIServerRefusesMalformedTopologies \
	TestAnObjectOnTheWire \
	TestPolicies \
	TestForgedAllocationsAreRefused \
	TestNodeAgentRights \
	TestKindsOfPools \
	TestShippedConfigurations \
	TestTheRequiredPodsFindTheirNodes \
	TestGeneratedProfilesAndPods \
	TestScheduling \
	TestContract \
	TestHardwareFailsAndRecovers \
	TestGangs \
	TestGangFlows \
	TestExplain \
	TestWhatIfNamesVictims \
	TestVerifierPublishesKubeletsRecord \
	TestCheckerOnARealControlPlane \
	TestDemoPlacesEveryPodBestAndLeavesNothing
space := $(subst ,, )
CORE := ^($(subst $(space),|,$(strip $(CORE_TESTS))))$$
