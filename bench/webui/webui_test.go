// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nvtopo/nvtopo/internal/testkit"
)

func TestMain(m *testing.M) {
	// The benchmark starts its own program, here this test's, as the viewers.
	if len(os.Args) > 1 && os.Args[1] == viewersCommand {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestShortRun measures a small cluster for two seconds: all processes start, receive changes, and
// end.
func TestShortRun(t *testing.T) {
	out := t.TempDir()
	var printed bytes.Buffer
	err := command(t.Context(), []string{
		"-nodes", "20", "-viewers", "3", "-changes", "10", "-duration", "2s", "-warm-up", "1s", "-program", testkit.OwnProgram(t, "nvtopo"), "-out", out,
	}, strings.NewReader(""), &printed, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if rows := strings.Count(printed.String(), "\n| "); rows != 6 { // a header, a line, and four cells
		t.Errorf("%d rows in\n%s", rows, printed.String())
	}
	if _, err := os.Stat(filepath.Join(out, resultFile)); err != nil {
		t.Error(err)
	}
}

func TestOptions(t *testing.T) {
	for name, args := range map[string][]string{
		"no viewers": {"-viewers", "0"}, "no nodes": {"-nodes", "0"}, "no time": {"-duration", "1ms"}, "a word": {"now"},
	} {
		if _, err := parse(args, io.Discard); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}
