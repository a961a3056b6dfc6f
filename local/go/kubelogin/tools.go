//go:build tools

// Package tools pins what is built from this module; versions.yaml says what for.
package tools

import (
	_ "github.com/Azure/kubelogin"
)
