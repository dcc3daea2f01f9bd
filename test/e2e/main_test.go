// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/pkg/devcluster/realnode"
)

// bin is the folder of all programs.
func bin() string {
	if dir := os.Getenv("NVTOPO_BIN"); dir != "" {
		return dir
	}
	return filepath.Join("..", "..", "bin")
}

// TestMain is also the first process of every node. It directs klog, which the
// in-process API server logs through, away from the terminal: errors of a
// starting API server are expected.
func TestMain(m *testing.M) {
	realnode.Init()
	if os.Getenv("SKIP_NODE") == "1" {
		_, _ = fmt.Println("SKIP_NODE=1: the tests on a real node are left out")
		return
	}
	if err := realnode.Check(bin()); err != nil {
		fmt.Fprintln(os.Stderr, err, "(SKIP_NODE=1 leaves these tests out)")
		os.Exit(1)
	}
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	if err := errors.Join(flags.Set("logtostderr", "false"), flags.Set("stderrthreshold", "FATAL")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	klog.SetOutput(io.Discard)
	flag.Parse()
	os.Exit(m.Run())
}
