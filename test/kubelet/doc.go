// SPDX-License-Identifier: Apache-2.0

// Package kubelet holds the tests that need kubelet's own code: assumptions about its device manager
// (claims_*_test.go), the whole chain of the node agent under it, and the prediction of its topology
// manager (predict_*_test.go). It is a Go module of its own because it links kubelet, which no shipped
// program does.
//
// The chain is inner device plugin, interposer, kubelet's device manager, with steering fed from a list
// of pods that a test controls. Its one invariant, checked at the end of every test and after every step
// of the random histories: no device belongs to two live pods, and kubelet's record is what the inner
// plugin's Allocate was told.
//
// The races that could separate the scheduler's choice from kubelet's record:
//
//	 1 two pending pods with equal counts         TestRace01
//	 2 admission order is not bind order          TestRace02
//	 3 informer behind kubelet                    TestRace03
//	 4 extra candidates in kubelet's view         TestRace04
//	 5 init containers, sidecars                  TestRace05
//	 6 several resources in one container         TestRace06
//	 7 allocated, then refused                    TestRace07
//	 8 kubelet restarts, with and without record  TestRace08
//	 9 inner plugin or agent restarts             TestRace09
//	10 deleted between bind and admission         TestRace10
//	11 old pod still terminating                  TestRace11
//	12 scheduler restarts                         not on the node: unbound choices are not kept, and
//	                                              bound ones are read again; test/integration plays it
//	13 two leaders choose the same                TestRace13
//	14 device unhealthy or gone after bind        TestRace14
//	15 pods of other schedulers                   TestRace15
//	16 kubelet gives a device twice               TestRace16
//	17 concurrent Allocate from pod workers       TestRace17; kubelet itself panics, see there
//	18 a container's own environment requests     not decided by devices: pkg/node/nodeagent/pinning
//	   other devices                              reports it, test/e2e shows it
//
// Races that cannot occur: two *admissions* at once, since kubelet holds a mutex (the harness does as
// well); a device allocated for a pod that kubelet does not show yet, since it is in the pod manager
// before the first handler runs (TestPodResources); an answer of ours that kubelet changes, as long as it
// has exactly the size and only devices on offer (TestPreferredDevices).
//
// The prediction sends random pods to random machines, lets our solver choose and kubelet's own topology,
// device, CPU and memory managers admit. By default it judges some hundred pods;
// NVTOPO_PREDICT_CASES=12000 is the full run of about two minutes on two cores, NVTOPO_PREDICT_SEED other
// pods. go test -v shows the table.
package kubelet
