# Writes a C file that holds every .sql file below FOLDER, byte for byte, as the table NAME[] with NAME_count.
#   cmake -DFOLDER=… -DNAME=… -DOUTPUT=… -P embed.cmake
# Bytes, not string literals: nothing in a file can then change its meaning on the way.
file(GLOB_RECURSE files RELATIVE ${FOLDER} ${FOLDER}/*.sql)
list(SORT files)
set(arrays "")
set(rows "")
set(index 0)
foreach(name IN LISTS files)
  file(READ ${FOLDER}/${name} hex HEX)
  file(SIZE ${FOLDER}/${name} size)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${hex}")
  string(APPEND arrays "static const char file_${index}[] = {${bytes}'\\0'};\n")
  string(APPEND rows "    {\"${name}\", file_${index}, ${size}},\n")
  math(EXPR index "${index} + 1")
endforeach()
# One row behind the last, so that an empty folder is still an array.
file(WRITE ${OUTPUT}.new "/* Made from ${NAME} by embed.cmake; not to be edited. */
#include \"coordinator/cli/embedded.h\"

${arrays}
const struct embedded_file ${NAME}[] = {
${rows}    {0, 0, 0},
};
const size_t ${NAME}_count = ${index};
")
file(COPY_FILE ${OUTPUT}.new ${OUTPUT})
