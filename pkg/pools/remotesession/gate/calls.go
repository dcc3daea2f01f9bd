// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// Operations of a client, in the names of RemoteGPUSession and the requirement.
const (
	modelForward = "MODEL_FORWARD"
	prefixTensor = "TENSOR_"
	prefixCUDA   = "CUDA_"
)

// operationsPath is the first part of the paths of operations that the protocol has no call for: POST
// /v2/operations/TENSOR_CREATE. A server that supports them serves them there.
const operationsPath = "operations"

// segment is the pattern of the name of a model or of its version. It is narrower than the protocol's,
// so that no server can read one path as another.
var segment = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)

// verdict is the decision on a request. The zero value lets it through.
type verdict struct {
	status int
	code   string // for programs
	reason string // for people
}

var (
	passed  = verdict{}
	unknown = verdict{http.StatusNotFound, "NOT_FOUND", "the session has no such call; it has those of the Open Inference Protocol, version 2"}
)

// judge decides a call according to its method and path. The calls are those of the protocol:
// https://github.com/kserve/open-inference-protocol/blob/main/specification/protocol/inference_rest.md
func judge(method, path string, allowed []string) verdict {
	parts := strings.Split(path, "/")
	if len(parts) < 2 || parts[0] != "" || parts[1] != "v2" {
		return unknown
	}
	parts = parts[2:]
	if len(parts) == 2 && parts[0] == operationsPath {
		return operation(method, parts[1], allowed)
	}
	if len(parts) > 0 && parts[len(parts)-1] == "infer" && model(parts[:len(parts)-1]) {
		return only(method, http.MethodPost, listed(modelForward, allowed))
	}
	if reads(parts) {
		return only(method, http.MethodGet, passed)
	}
	return unknown
}

// reads reports whether a path is a read-only call: on the server, its health or its models.
func reads(parts []string) bool {
	switch {
	case len(parts) == 0, slices.Equal(parts, []string{"health", "live"}), slices.Equal(parts, []string{"health", "ready"}):
		return true
	case parts[len(parts)-1] == "ready":
		return model(parts[:len(parts)-1])
	}
	return model(parts)
}

// model reports whether a path is that of a model, or of a version of one.
func model(parts []string) bool {
	switch len(parts) {
	case 2:
		return parts[0] == "models" && segment.MatchString(parts[1])
	case 4:
		return model(parts[:2]) && parts[2] == "versions" && segment.MatchString(parts[3])
	}
	return false
}

// operation decides operations that the protocol has no call for.
func operation(method, name string, allowed []string) verdict {
	switch {
	case strings.HasPrefix(name, prefixCUDA):
		return verdict{
			http.StatusNotImplemented, "UNIMPLEMENTED",
			"a session runs no calls of CUDA for a client: it serves models (docs/decisions/0026-remote-gpus.md)",
		}
	case strings.HasPrefix(name, prefixTensor) && slices.Contains(allowed, name):
		return only(method, http.MethodPost, passed)
	case strings.HasPrefix(name, prefixTensor):
		return verdict{http.StatusNotImplemented, "UNIMPLEMENTED", name + " is not among the session's operations"}
	}
	return unknown
}

func listed(operation string, allowed []string) verdict {
	if slices.Contains(allowed, operation) {
		return passed
	}
	return verdict{http.StatusForbidden, "NOT_ALLOWED", operation + " is not among the session's operations"}
}

// only returns v, or a refusal if the method is not the call's.
func only(method, want string, v verdict) verdict {
	if method != want {
		return verdict{http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED", "the call is a " + want}
	}
	return v
}
