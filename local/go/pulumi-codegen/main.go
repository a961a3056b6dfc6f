// Command pulumi-codegen writes the SDK of a package from its schema: pulumi-codegen LANGUAGE LOADER FOLDER < schema.
//
// LOADER is the address of the engine's loader of schemas, to which the package may refer. The engine's own language
// hosts do this in process; ours for Python (engine/language_host) starts this program.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/pulumi/pulumi/pkg/v3/codegen/nodejs"
	"github.com/pulumi/pulumi/pkg/v3/codegen/python"
	"github.com/pulumi/pulumi/pkg/v3/codegen/schema"
)

func main() {
	if len(os.Args) != 4 {
		fail(fmt.Errorf("usage: pulumi-codegen python|nodejs LOADER FOLDER < schema"))
	}
	var spec schema.PackageSpec
	if err := json.NewDecoder(os.Stdin).Decode(&spec); err != nil {
		fail(err)
	}
	loader, err := schema.NewLoaderClient(os.Args[2])
	if err != nil {
		fail(err)
	}
	cached := schema.NewCachedLoader(loader)
	pkg, diagnostics, err := schema.BindSpec(spec, cached, schema.ValidationOptions{AllowDanglingReferences: true})
	if err != nil {
		fail(err)
	}
	if diagnostics.HasErrors() {
		fail(diagnostics)
	}
	var files map[string][]byte
	switch os.Args[1] {
	case "python":
		files, err = python.GeneratePackage("pulumi-language-python", pkg, nil, cached)
	case "nodejs":
		files, err = nodejs.GeneratePackage("pulumi-language-nodejs", pkg, nil, nil, true, cached)
	default:
		err = fmt.Errorf("no language %q", os.Args[1])
	}
	if err != nil {
		fail(err)
	}
	for name, content := range files {
		path := filepath.Join(os.Args[3], name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			fail(err)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			fail(err)
		}
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
