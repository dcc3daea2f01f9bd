// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	_ "embed"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Annotations that steer the simulation.
const (
	// AnnotationKwokNode marks a node as simulated; kwok looks after the pods of such nodes only.
	AnnotationKwokNode = "kwok.x-k8s.io/node"
	// AnnotationRunsFor on a pod makes it succeed that long (a Go duration)
	// after it started running, or at once when put on a running pod as "0s".
	AnnotationRunsFor = "devcluster.nvtopo.dev/runs-for"
	// AnnotationLingers on a pod has it run on after it was deleted, until the annotation is taken
	// away: as one that makes use of its grace period.
	AnnotationLingers = "devcluster.nvtopo.dev/lingers"
)

//go:embed stages.yaml
var stages []byte

// startKwok starts kwok for the nodes that carry AnnotationKwokNode.
func startKwok(binary, dir, kubeconfig string, log io.Writer) (*process, error) {
	path, err := filepath.Abs(binary)
	if err != nil {
		return nil, fmt.Errorf("kwok's path: %w", err)
	}
	config := filepath.Join(dir, "kwok.yaml")
	if err := os.WriteFile(config, stages, 0o600); err != nil {
		return nil, fmt.Errorf("write kwok's stages: %w", err)
	}
	return startProcess("kwok", path, []string{
		"--kubeconfig=" + kubeconfig,
		"--config=" + config,
		"--manage-nodes-with-annotation-selector=" + AnnotationKwokNode + "=fake",
		// No node controller watches heartbeats here, so none are sent.
		"--node-lease-duration-seconds=0",
	}, dir, log)
}
