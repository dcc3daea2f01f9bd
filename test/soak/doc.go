// SPDX-License-Identifier: Apache-2.0

// Package soak keeps two schedulers with leader election, a real API server and a dozen simulated nodes
// under churn and faults for a while, and checks the invariants of package check all the time: `make soak
// SEED=1 DURATION=4m`.
//
// The operations are a plan made from the seed alone: pods created, deleted, deleted by force and
// recreated, failed, finished, evicted; gangs created, edited, deleted, recreated under their names, and
// members of theirs killed; nodes cordoned, moved to other racks, deleted and recreated; graphs changed,
// shrunk and removed; Leases stopped; schedulers killed and paused; the API server restarted, slow and
// faulty; writes of PodGroups refused; watches delayed and cut. The same seed gives the same plan and the
// same fault for a client's n-th request of a kind; only their timing differs. A hostile tenant acts at
// the same time, and in sieges afterwards.
//
// The schedulers, the exporters, the comparison of kubelet's record with the choices (package verify) and
// the controller that repairs annotations are the product's own with the shipped manifests' rights.
// kubelet is simulated, at the interface that it shares with the product: it admits one pod at a time,
// keeps a record of devices in its own checkpoint format and never gives out a device twice.
//
// TestRecording plays such a plan slowly for a Prometheus, whose recording is drawn as the pictures of
// the dashboards.
package soak
