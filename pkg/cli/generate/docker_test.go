// SPDX-License-Identifier: Apache-2.0

package generate

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

func aContainer(change func(*Docker)) *Docker {
	d := &Docker{
		GPUs: []int{0, 1}, CPUs: nvtopo.NewCPUSet(0, 1, 2, 3, 64, 65, 66, 67), MemNodes: []int{0, 1},
		Memory: 64 * gib, MemoryReservation: 56 * gib, SharedMemory: 32 * gib, CPUShares: 1024, Image: "example.com/train:1",
	}
	if change != nil {
		change(d)
	}
	return d
}

// words has a real shell divide a command line, with a function in the place of docker.
func words(t *testing.T, line []byte) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-euc", "docker() { printf '%s\\000' docker \"$@\"; }\n"+string(line))
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("sh: %v\n%s", err, line)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

func TestDockerShell(t *testing.T) {
	got, err := aContainer(func(d *Docker) { d.Name, d.Command = "train-0", []string{"python", "train.py"} }).Write()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"docker", "run", "--rm", "--name=train-0", "--gpus", `"device=0,1"`, "--cpuset-cpus=0-3,64-67", "--cpuset-mems=0,1",
		"--cpus=8", "--cpu-shares=1024", "--memory=64g", "--memory-reservation=56g", "--shm-size=32g",
		"-e", "OMP_NUM_THREADS=4", "-e", "OMP_PLACES=cores", "-e", "OMP_PROC_BIND=false", "example.com/train:1", "python", "train.py",
	}
	if diff := cmp.Diff(want, words(t, got)); diff != "" {
		t.Errorf("(-want,+got):\n%s", diff)
	}
}

func TestQuotedWords(t *testing.T) {
	for _, word := range []string{"plain", "", "two words", "it's", `$(reboot)`, "`id`", "a;b", "new\nline", `back\slash`, `"quoted"`, "*", "~", "!x", "é"} {
		if got := words(t, []byte("docker "+quote(word))); len(got) != 2 || got[1] != word {
			t.Errorf("%q becomes %q", word, got)
		}
	}
}

func TestBadContainers(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Docker)
		want   string
	}{
		"no GPUs":                         {func(d *Docker) { d.GPUs = nil }, "one GPU"},
		"no CPUs":                         {func(d *Docker) { d.CPUs = nil }, "one CPU"},
		"no image":                        {func(d *Docker) { d.Image = "" }, "image"},
		"an image that is a flag":         {func(d *Docker) { d.Image = "--privileged" }, `"--privileged"`},
		"no weight":                       {func(d *Docker) { d.CPUShares = 1 }, "CPU shares 1"},
		"memory for nobody":               {func(d *Docker) { d.Memory = mib }, "6 MiB or more"},
		"more is reserved than there is":  {func(d *Docker) { d.MemoryReservation = 65 * gib }, "memory reservation"},
		"nothing is shared":               {func(d *Docker) { d.SharedMemory = 0 }, "shared memory of 0"},
		"more is shared than the memory":  {func(d *Docker) { d.SharedMemory = 64 * gib }, "of which it is a part"},
		"hardly anything would be shared": {func(d *Docker) { d.SharedMemory = -1 }, "shared memory of -1"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := aContainer(tc.change).Write(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestDockerSizes(t *testing.T) {
	for bytes, want := range map[int64]string{gib: "1g", 3 * mib: "3m", 1000: "1000b", 2*gib + mib: "2049m"} {
		if got := dockerSize(bytes); got != want {
			t.Errorf("%d bytes are %q, want %q", bytes, got, want)
		}
	}
}
