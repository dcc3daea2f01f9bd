// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"testing"

	"k8s.io/klog/v2"
)

// logVariable names the file that logs are appended to; without it they are discarded.
const logVariable = "NVTOPO_LOG"

var openLog = sync.OnceValues(func() (io.Writer, error) {
	path := os.Getenv(logVariable)
	if path == "" {
		return io.Discard, nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) // closed with the process
	if err != nil {
		return io.Discard, fmt.Errorf("%s: %w", logVariable, err)
	}
	return f, nil
})

// Log returns the writer for the logs of all that tests start: the file that NVTOPO_LOG names, or a
// writer that discards them.
func Log() io.Writer {
	w, _ := openLog() // Main has reported the error
	return w
}

// gcPercent is GOGC of tests with a control plane. With Go's default of 100, garbage collection takes a
// fifth of the CPU time of a control plane; this value takes 2.5 GB of memory instead of 1.2.
const gcPercent = 400

// Main runs the tests of a package with a control plane in its process, and returns the exit code. klog,
// of which there is one per process, writes to Log. GOGC in the environment overrides gcPercent.
func Main(m *testing.M) int {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	log, err := openLog()
	if err := errors.Join(err, DirectKlog(log, 0)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// DirectKlog directs klog to a writer, each line once. Errors go only there too: those of a starting API
// server are expected.
func DirectKlog(w io.Writer, verbosity int) error {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	for _, f := range [][2]string{{"logtostderr", "false"}, {"stderrthreshold", "FATAL"}, {"one_output", "true"}, {"v", strconv.Itoa(verbosity)}} {
		if err := flags.Set(f[0], f[1]); err != nil {
			return fmt.Errorf("klog's %s: %w", f[0], err)
		}
	}
	klog.SetOutput(w)
	return nil
}
