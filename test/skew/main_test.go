// SPDX-License-Identifier: Apache-2.0

package skew

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/nvtopo/nvtopo/internal/devcluster/realnode"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/manifests"
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

func after() release { return release{name: "new", bin: testkit.Bin(), manifests: manifests.FS} }

// TestMain is also the first process of every node.
func TestMain(m *testing.M) {
	realnode.Init()
	if err := built(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(testkit.Main(m))
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
