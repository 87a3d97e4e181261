# Makes a folder of installed packages ready for an image: smaller, compiled, the same each time.
set -eu
folder=$1

# Headers, static libraries and programs are for compiling against PyTorch, which itself
# starts torch_shm_manager only.
for torch in "$folder"/lib/python3.*/site-packages/torch; do
    [ -d "$torch" ] || continue
    rm -rf "$torch/include" "$torch/share" "$torch/test"
    find "$torch" -name '*.a' -delete
    find "$torch/bin" -type f ! -name torch_shm_manager -delete
done

# Tests of others; NumPy's hold what its `numpy.testing` imports.
find "$folder" -type d -name tests -not -path '*/numpy/*' -prune -exec rm -rf {} +

# Compiled now, since nothing can be written there later, and by content, since times would differ
# each time. Of hundreds of architectures a model has one, which is compiled whenever it is loaded.
# Some files are for other releases of Python and can't be compiled.
find "$folder" -type d -name __pycache__ -prune -exec rm -rf {} +
python -m compileall -qq --invalidation-mode unchecked-hash -x 'transformers/models/' "$folder" \
    || true
find "$folder" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
