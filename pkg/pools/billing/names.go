// SPDX-License-Identifier: Apache-2.0

package billing

import (
	"fmt"
	"strings"
)

// maxName is the length of the longest name in Kubernetes.
const maxName = 253

// checkName accepts names, label values and resource names of Kubernetes. An accepted name is harmless
// in a CSV file that a spreadsheet opens: it does not begin with = + - or @.
func checkName(field, s string) error {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	switch {
	case s == "":
		return fmt.Errorf("%s: is missing", field)
	case len(s) > maxName:
		return fmt.Errorf("%s: has more than %d characters", field, maxName)
	case !strings.ContainsRune(letters, rune(s[0])), strings.Trim(s, letters+"-_./:") != "":
		return fmt.Errorf("%s: %q: want letters, digits and -_./: behind a letter or digit", field, s)
	}
	return nil
}
