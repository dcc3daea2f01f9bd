// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"testing"
)

// FuzzInput passes any bytes as a file: the command prints a result, or refuses the input with the exit
// code for that, and it can read its own export.
func FuzzInput(f *testing.F) {
	for _, file := range []string{"testdata/dgx1v.txt", "testdata/object.yaml", "testdata/numactl.txt"} {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"apiVersion":"topology.nvtopo.dev/v1alpha1","kind":"NodeGPUTopology","spec":{"gpus":[{"id":"a","index":0,"numaNode":-1}]}}`))
	f.Add([]byte("kind: NodeGPUTopology\n---\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		export := func(input []byte) ([]byte, error) {
			cmd := New(programName)
			var out bytes.Buffer
			cmd.SetOut(&out)
			cmd.SetIn(bytes.NewReader(input))
			cmd.SetArgs([]string{"export", "-f", "-"})
			err := cmd.ExecuteContext(t.Context())
			return out.Bytes(), err
		}
		first, err := export(data)
		if err != nil {
			// Usage: an object of several resources, none of them the default one.
			if code := ExitCode(err); code != ExitInput && code != ExitUsage {
				t.Fatalf("exit code %d: %v", code, err)
			}
			return
		}
		second, err := export(first)
		if err != nil {
			t.Fatalf("the export cannot be read again: %v\n%s", err, first)
		}
		if !bytes.Equal(first, second) {
			t.Fatalf("the export of the export differs:\n%s\n%s", first, second)
		}
	})
}
