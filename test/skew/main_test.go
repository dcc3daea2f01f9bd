// SPDX-License-Identifier: Apache-2.0

package skew

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/manifests"
	"github.com/nvtopo/nvtopo/pkg/devcluster/realnode"
)

// oldEnv names the folder of the other release: bin and manifests.
const oldEnv = "NVTOPO_SKEW_OLD"

// release is one of the two.
type release struct {
	name      string
	bin       string
	manifests fs.FS
}

func (r release) String() string { return r.name }

// program is the path of one of its programs.
func (r release) program(name string) string { return filepath.Join(r.bin, name) }

// before is the previous release, after is this one.
func before() release {
	dir := os.Getenv(oldEnv)
	return release{name: "old", bin: filepath.Join(dir, "bin"), manifests: os.DirFS(filepath.Join(dir, "manifests"))}
}

func after() release { return release{name: "new", bin: bin(), manifests: manifests.FS} }

// bin is the folder of this release's programs, and of a node's.
func bin() string {
	dir := os.Getenv("NVTOPO_BIN")
	if dir == "" {
		dir = filepath.Join("..", "..", "bin")
	}
	path, err := filepath.Abs(dir)
	if err != nil {
		return dir
	}
	return path
}

// logSink receives the logs of clusters and their children.
var logSink io.Writer = io.Discard

// TestMain is also the first process of every node. It directs klog, which the
// in-process control plane logs through, to the file named by NVTOPO_LOG.
func TestMain(m *testing.M) {
	realnode.Init()
	flag.Parse()
	if err := built(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(run(m))
}

func built() error {
	for _, r := range []release{before(), after()} {
		for _, name := range []string{"nvtopo-scheduler", "nvtopo-exporter", "nvtopo-node-agent"} {
			if _, err := os.Stat(r.program(name)); err != nil {
				return fmt.Errorf("%w: run these tests with make skew", err)
			}
		}
	}
	return nil
}

func run(m *testing.M) int {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	// Errors too go to the file only: those of a starting API server are expected.
	if err := errors.Join(flags.Set("logtostderr", "false"), flags.Set("stderrthreshold", "FATAL")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if path := os.Getenv("NVTOPO_LOG"); path != "" {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer f.Close()
		logSink = f
	}
	klog.SetOutput(logSink)
	return m.Run()
}
