// SPDX-License-Identifier: Apache-2.0

// Package devicemanager runs kubelet's own device manager, topology manager and PodResources service
// inside a test, on the paths they are compiled with.
//
// Kubelet's choice of devices is not imitated: it is kubelet's code. Only the part of kubelet around it
// is imitated, in the order of its source: pods become known before they are admitted, are admitted one
// at a time, a refused pod is inactive at once, and a restart admits all pods again before it trusts its
// sources.
//
// The socket directory is fixed at /var/lib/kubelet/device-plugins, so a test binary must call [Main]
// from TestMain: it runs itself again in a private mount namespace in which /var/lib/kubelet is an empty
// tmpfs. Hence the invariant: the machine's own /var/lib/kubelet is never touched and nothing is left
// behind.
//
// It has no containers, volumes or API server; test/e2e has those.
package devicemanager
