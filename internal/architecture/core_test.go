// SPDX-License-Identifier: Apache-2.0

package architecture

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestCore fails if mk/core.mk names a test that does not exist: make test would skip it silently.
func TestCore(t *testing.T) {
	list, err := os.ReadFile("../../mk/core.mk")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../../test/integration/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var tests strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tests.Write(text)
	}
	names := regexp.MustCompile(`(?m)^\tTest\w+`).FindAllString(string(list), -1)
	if len(names) == 0 {
		t.Error("mk/core.mk names no test")
	}
	for _, name := range names {
		if name = strings.TrimSpace(name); !strings.Contains(tests.String(), "\nfunc "+name+"(") {
			t.Errorf("mk/core.mk names %s, which is no test of test/integration", name)
		}
	}
}
