// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"testing"

	"k8s.io/klog/v2"
)

// TestMain directs klog, which the in-process API server and controllers log
// through and which is one per process, to the file named by NVTOPO_LOG.
func TestMain(m *testing.M) {
	klogFlags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(klogFlags)
	// Errors too go to the file only: those of a starting API server are expected.
	if err := errors.Join(klogFlags.Set("logtostderr", "false"), klogFlags.Set("stderrthreshold", "FATAL")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	sink := io.Discard
	if path := os.Getenv("NVTOPO_LOG"); path != "" {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer f.Close()
		sink = f
	}
	logSink = sink
	klog.SetOutput(sink)
	return m.Run()
}
