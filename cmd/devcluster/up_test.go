// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

// TestStartingLine: the first line says what is started and how long it usually takes.
func TestStartingLine(t *testing.T) {
	for want, tc := range map[string]struct {
		flags upFlags
		nodes int
	}{
		"starting a cluster of 12 simulated GPU nodes with the scheduler: it usually takes 10 s":                                {nodes: 12},
		"starting a cluster of 400 simulated GPU nodes with the scheduler: it usually takes 49 s":                               {nodes: 400},
		"starting a cluster of 12 simulated GPU nodes with the scheduler, Kueue and the pool controller: it usually takes 20 s": {nodes: 12, flags: upFlags{pools: true}},
		"starting a cluster of 12 simulated GPU nodes with nvtopo's chart: it usually takes 20 s":                               {nodes: 12, flags: upFlags{helm: true}},
	} {
		if got := tc.flags.starting(tc.nodes); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestReadyLine: the last line says what to set, and names the folder of --dir, which stays after Ctrl-C.
func TestReadyLine(t *testing.T) {
	for dir, want := range map[string]string{
		"":        "the cluster is ready: set KUBECONFIG in another terminal by the line above. Ctrl-C here ends the cluster and removes everything",
		"/home/c": "the cluster is ready: set KUBECONFIG in another terminal by the line above. Ctrl-C here ends the cluster and leaves the folder /home/c",
	} {
		if got := ready(dir); got != want {
			t.Errorf("--dir %q: got %q, want %q", dir, got, want)
		}
	}
}
