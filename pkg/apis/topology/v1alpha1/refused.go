// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// fieldNotDeclared is part of the message with which the API server refuses server-side apply of
// a field that the definition does not have.
const fieldNotDeclared = "field not declared in schema"

// Refused names the object of a failed request of a program, such as the exporter, and tells the
// operator how to repair the usual mistakes of installation. verb is what was asked for, such as "get".
func Refused(err error, program, verb, kind, name string) error {
	switch {
	case strings.Contains(err.Error(), fieldNotDeclared):
		return fmt.Errorf("%s %s %q: the CRD is not the one of this %s's version, apply that: %w", verb, kind, name, program, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%s %s %q: not allowed, check the %s's RBAC and admission policies: %w", verb, kind, name, program, err)
	}
	return fmt.Errorf("%s %s %q: %w", verb, kind, name, err)
}
