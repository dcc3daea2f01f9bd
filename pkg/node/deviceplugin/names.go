// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// CheckResourceName returns an error if kubelet would reject name as an extended resource: it needs a
// domain other than kubernetes.io's and must be short enough for a quota to name it.
func CheckResourceName(name string) error {
	const quotaPrefix = "requests."
	switch {
	case !strings.Contains(name, "/"):
		return fmt.Errorf("resource %q: not of the form domain/name", name)
	case strings.Contains(name, "kubernetes.io/"):
		return fmt.Errorf("resource %q: kubernetes.io is reserved", name)
	case strings.HasPrefix(name, quotaPrefix):
		return fmt.Errorf("resource %q: the prefix %s is reserved", name, quotaPrefix)
	}
	if msgs := validation.IsQualifiedName(quotaPrefix + name); len(msgs) > 0 {
		return fmt.Errorf("resource %q: %s", name, strings.Join(msgs, "; "))
	}
	return nil
}
