// SPDX-License-Identifier: Apache-2.0

package main

// program is a program with an image of its own.
type program struct {
	name        string // of the program and of the image
	description string
	// user is the image's user, the same as in the pod of manifests: "UID:GID".
	user string
}

// nonroot is the user of all programs that need not run as root.
const nonroot = "65532:65532"

func programs() []program {
	return []program{
		{"nvtopo-scheduler", "A kube-scheduler that knows how GPUs are linked", nonroot},
		{"nvtopo-exporter", "Publishes the GPU link graph of its node", nonroot},
		// kubelet's folders and sockets belong to root and are closed to others.
		{"nvtopo-node-agent", "Has containers get the GPUs that the scheduler chose", "0:0"},
		{"nvtopo-pool-controller", "Pools, quotas, elastic jobs and billing", nonroot},
		{"nvtopo", "Shows, explains and checks what the scheduler did", nonroot},
	}
}
