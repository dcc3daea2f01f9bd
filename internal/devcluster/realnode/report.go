// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// podLogsDir is kubelet's default.
const podLogsDir = "/var/log/pods"

// ErrNoReport says that a container has not printed its report (yet).
var ErrNoReport = errors.New("no report yet")

// Report is what the probe saw in its container.
type Report struct {
	// Env is the environment; of duplicate keys the last counts, as it does for the container's libraries.
	Env map[string]string `json:"env"`
	// Duplicates are the keys that occur more than once.
	Duplicates []string `json:"duplicates"`
	// CPUs and Mems are Cpus_allowed_list and Mems_allowed_list of the process.
	CPUs string `json:"cpus"`
	Mems string `json:"mems"`
	// GPUs are the device nodes of NVIDIA's GPUs.
	GPUs []string `json:"gpus"`
}

// Report reads what a container of the pod printed when it was started first,
// or ErrNoReport. kubelet removes it with the pod.
func (n *Node) Report(pod *v1.Pod, container string) (*Report, error) {
	path := filepath.Join(podLogsDir, pod.Namespace+"_"+pod.Name+"_"+string(pod.UID), container, "0.log")
	data, err := os.ReadFile(n.Path(path))
	if errors.Is(err, os.ErrNotExist) {
		return nil, ErrNoReport
	}
	if err != nil {
		return nil, fmt.Errorf("read the output of %s/%s: %w", pod.Name, container, err)
	}
	r, err := parseReport(string(data))
	if err != nil {
		return nil, fmt.Errorf("output of %s/%s: %w", pod.Name, container, err)
	}
	return r, nil
}

// parseReport reads the first line of a log in the CRI format: time, stream, F
// for a full line, the line. One longer than a container runtime's buffer
// (16 KiB in containerd) would come in parts, which no report is.
func parseReport(log string) (*Report, error) {
	line, _, whole := strings.Cut(log, "\n")
	if !whole {
		return nil, ErrNoReport
	}
	fields := strings.SplitN(line, " ", 4)
	if len(fields) != 4 || fields[2] != "F" {
		return nil, fmt.Errorf("not a full line: %q", line)
	}
	r := &Report{}
	if err := json.Unmarshal([]byte(fields[3]), r); err != nil {
		return nil, fmt.Errorf("not a report: %w", err)
	}
	return r, nil
}
