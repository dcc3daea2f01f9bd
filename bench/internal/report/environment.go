// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// Environment is the conditions of a figure besides the program. An unknown value is empty or
// 0.
type Environment struct {
	Date       time.Time `json:"date"`
	Command    []string  `json:"command"`
	Commit     string    `json:"commit,omitempty"` // with "-dirty" when tracked files differ from it
	GoVersion  string    `json:"goVersion"`
	Kubernetes string    `json:"kubernetes,omitempty"` // version of the libraries the program is linked with
	CPU        string    `json:"cpu,omitempty"`
	Cores      int       `json:"cores"` // usable by the process
	GOMAXPROCS int       `json:"gomaxprocs"`
	Memory     int64     `json:"memoryBytes,omitempty"`
	Kernel     string    `json:"kernel,omitempty"`
}

// Capture describes the machine, the sources and the process it is called in.
func Capture(ctx context.Context) Environment {
	return Environment{
		Date: time.Now().UTC(), Command: os.Args, Commit: commit(ctx), GoVersion: runtime.Version(),
		Kubernetes: LinkedVersion("k8s.io/kubernetes"), CPU: procField("/proc/cpuinfo", "model name"), Cores: runtime.NumCPU(),
		GOMAXPROCS: runtime.GOMAXPROCS(0), Memory: memory(), Kernel: firstLine("/proc/sys/kernel/osrelease"),
	}
}

// String returns the environment in one line, to print above the tables.
func (e Environment) String() string {
	parts := []string{e.Date.Format(time.RFC3339)}
	add := func(label, value string) {
		if value != "" {
			parts = append(parts, label+value)
		}
	}
	add("commit ", e.Commit)
	add("", e.GoVersion)
	add("Kubernetes ", e.Kubernetes)
	add("", e.CPU)
	add("", strconv.Itoa(e.Cores)+" cores")
	add("GOMAXPROCS ", strconv.Itoa(e.GOMAXPROCS))
	if e.Memory > 0 {
		add("", strconv.FormatFloat(float64(e.Memory)/(1<<30), 'f', 1, 64)+" GiB")
	}
	add("Linux ", e.Kernel)
	return strings.Join(parts, ", ")
}

// commit reads the revision from git, not from the build information: `go run` records none.
func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--abbrev=12", "--dirty", "--exclude=*").Output()
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(out))
}

// LinkedVersion returns the version of a module that this program is linked with; "" if it is
// not.
func LinkedVersion(module string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range info.Deps {
		if m.Path == module {
			return m.Version
		}
	}
	return ""
}

// memory returns the machine's memory in bytes; /proc/meminfo counts in KiB.
func memory() int64 {
	kib, err := strconv.ParseInt(strings.TrimSuffix(procField("/proc/meminfo", "MemTotal"), " kB"), 10, 64)
	if err != nil {
		return 0
	}
	return kib << 10
}

// procField returns the value of the first "key : value" line of a file.
func procField(path, key string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		if k, v, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

func firstLine(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return line
}
