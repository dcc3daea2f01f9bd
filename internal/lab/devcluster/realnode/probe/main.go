// SPDX-License-Identifier: Apache-2.0

// Probe is the only program in the only image of the node. As `probe report DURATION` it prints one line
// of JSON about its container's environment and devices and then sleeps for that long; without a duration
// it sleeps until it is told to end, and with the duration 0s it ends at once. As `probe pause` it holds
// a pod's sandbox.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// report has the field names of realnode.Report.
type report struct {
	Env        map[string]string `json:"env"`
	Duplicates []string          `json:"duplicates,omitempty"`
	CPUs       string            `json:"cpus"`
	Mems       string            `json:"mems"`
	GPUs       []string          `json:"gpus,omitempty"`
}

func main() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	var end <-chan time.Time // never, when nil
	if len(os.Args) > 1 && os.Args[1] == "report" {
		if err := print(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if len(os.Args) > 2 {
			d, err := time.ParseDuration(os.Args[2])
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(2)
			}
			end = time.After(d)
		}
	}
	select {
	case <-stop:
	case <-end:
	}
}

func print() error {
	// As the kernel has it: Go's own copy leaves out duplicates.
	environ, err := os.ReadFile("/proc/self/environ")
	if err != nil {
		return err
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	r := report{Env: map[string]string{}}
	for e := range bytes.SplitSeq(bytes.TrimRight(environ, "\x00"), []byte{0}) {
		key, value, _ := strings.Cut(string(e), "=")
		if _, twice := r.Env[key]; twice {
			r.Duplicates = append(r.Duplicates, key)
		}
		r.Env[key] = value
	}
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(line, ":")
		switch key {
		case "Cpus_allowed_list":
			r.CPUs = strings.TrimSpace(value)
		case "Mems_allowed_list":
			r.Mems = strings.TrimSpace(value)
		}
	}
	if r.GPUs, err = filepath.Glob("/dev/nvidia[0-9]*"); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}
