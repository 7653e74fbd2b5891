# bytes.cmake: the bytes of IN, files one after the other, as numbers of a C initialiser in OUT.
set(bytes)
foreach(file ${IN})
    file(READ ${file} more HEX)
    string(APPEND bytes ${more})
endforeach()
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE ${OUT} "${bytes}\n")
