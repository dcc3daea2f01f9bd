// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// podLogsDir is kubelet's default.
const podLogsDir = "/var/log/pods"

// ErrNoReport means that a container has not printed its report (yet).
var ErrNoReport = errors.New("no report yet")

// Report holds the probe's observations in its container.
type Report struct {
	// Env is the environment; of duplicate keys the last is used, as the container's libraries do.
	Env map[string]string `json:"env"`
	// Duplicates are the keys that occur more than once.
	Duplicates []string `json:"duplicates"`
	// CPUs and Mems are Cpus_allowed_list and Mems_allowed_list of the process.
	CPUs string `json:"cpus"`
	Mems string `json:"mems"`
	// GPUs are the device nodes of NVIDIA's GPUs.
	GPUs []string `json:"gpus"`
	// Restarts is how often kubelet had restarted the container when it first ran. It is not 0
	// if kubelet was killed after it made the container, and before that ran.
	Restarts int `json:"-"`
}

// Report returns the report that a container of the pod printed when it first ran, or ErrNoReport.
// kubelet removes it with the pod.
func (n *Node) Report(pod *v1.Pod, container string) (*Report, error) {
	r, err := readReport(n.Path(filepath.Join(podLogs(pod), container)))
	if err != nil && !errors.Is(err, ErrNoReport) {
		return nil, fmt.Errorf("output of %s/%s: %w", pod.Name, container, err)
	}
	return r, err
}

// Output is what a container of the pod has printed so far, since it first ran, in lines of less
// than 16 KiB, which the runtime does not break. kubelet removes it with the pod.
func (n *Node) Output(pod *v1.Pod, container string) (string, error) {
	log, err := os.ReadFile(n.Path(filepath.Join(podLogs(pod), container, "0.log")))
	if err != nil {
		return "", fmt.Errorf("output of %s/%s: %w", pod.Name, container, err)
	}
	var out strings.Builder
	for line := range strings.Lines(string(log)) {
		if fields := strings.SplitN(line, " ", 4); len(fields) == 4 {
			out.WriteString(fields[3])
		}
	}
	return out.String(), nil
}

// podLogs returns the folder of a pod's logs on the node.
func podLogs(pod *v1.Pod) string {
	return filepath.Join(podLogsDir, pod.Namespace+"_"+pod.Name+"_"+string(pod.UID))
}

// readReport reads the first report in the logs of a container, which are named by its restarts.
func readReport(folder string) (*Report, error) {
	logs, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var first *Report
	for _, log := range logs {
		restarts, err := strconv.Atoi(strings.TrimSuffix(log.Name(), ".log"))
		if err != nil || first != nil && first.Restarts < restarts {
			continue // one that kubelet has rotated, or a later one
		}
		data, err := os.ReadFile(filepath.Join(folder, log.Name()))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		r, err := parseReport(string(data))
		if errors.Is(err, ErrNoReport) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", log.Name(), err)
		}
		r.Restarts = restarts
		first = r
	}
	if first == nil {
		return nil, ErrNoReport
	}
	return first, nil
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
